"""The scalers' limits: measured alike on every backend."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.records.record import Outcome
from harness.tasks.scaler_limits import batches as plans
from harness.tasks.scaler_limits import tables, training
from harness.tasks.scaler_limits.law import Law
from harness.tasks.scaler_limits.listen import listening
from harness.tasks.scaler_limits.settings import (
    ON_DEVICE,
    PEER,
    RAISES,
    SUBJECTS,
    WARNS,
    Settings,
)
from harness.tests.synthetic import record_of
from lockstep.messages.errors import OutOfRangeError, UnknownNameError

EXPERIMENT = declare.find("scaler_limits")
BACKENDS = ("pytorch", "tf")


def settings(situation: str, subject: str = WARNS, **changes: Any) -> Settings:
    """Return a run of the experiment."""
    config = next(
        run.config
        for run in EXPERIMENT.runs("quick")
        if (run.config["situation"], run.config["subject"]) == (situation, subject)
    )
    return Settings(**{**config, **changes})


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"subject": "pear"}, UnknownNameError, "did you mean 'peer'"),
        ({"overflows": 0}, OutOfRangeError, "overflows: expected a whole number > 0"),
        ({"clip_norm": 0.0}, OutOfRangeError, "clip_norm: expected a finite number"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(
    changes: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        dataclasses.replace(settings("overflow"), **changes)


# -- the instruments -------------------------------------------------------------------


class Scripted:
    """A scaler that does as it is told: ``does`` maps a step to what happens there."""

    def __init__(self, of: Settings, **does: Any) -> None:
        self.of, self.does, self.number = of, does, 0
        self.weight = np.ones(plans.SHAPE, np.float32)
        self.momentum = np.zeros(plans.SHAPE, np.float32)

    def step(self, batch: Any) -> None:
        self.number += 1
        if np.isfinite(batch).all() and self.number != self.does.get("skips"):
            gradient = batch * (self.number != self.does.get("loses"))
            self.momentum = np.float32(self.of.momentum) * self.momentum + gradient
            self.weight = self.weight - np.float32(self.of.rate) * self.momentum
        if self.number == self.does.get("touches"):
            self.weight[0, 0] = np.nextafter(self.weight[0, 0], np.float32(9))
        if self.number == self.does.get("breaks"):
            self.weight[1, 1] = math.nan
        if self.number == self.does.get("warns"):
            warnings.warn("head", stacklevel=1)
        if self.number == self.does.get("fails"):
            raise RuntimeError("head")

    def scale(self) -> float:
        return math.inf if self.number == self.does.get("grows") else 8.0

    def weights(self) -> list[Any]:
        return list(self.weight.copy())

    def slots(self) -> list[Any]:
        return list(self.momentum.copy())


SHORT = {"before": 3, "overflows": 4, "after": 5}


def seen(backend: str, of: Settings, outcome: Outcome) -> tables.Observed:
    """Return the run as tables see it."""
    run = declare.Run("scaler_limits", "scaler_limits", dataclasses.asdict(of), 0)
    return tables.Observed(backend, of, record_of(run, backend, outcome))


def watched(**does: Any) -> tables.Observed:
    of = settings("overflow", **SHORT)
    outcome = training.observe(of, Scripted(of, **does), plans.make(of, 0))
    return seen("pytorch", of, outcome)


def test_a_scaler_that_keeps_everything_is_seen_to_do_so() -> None:
    run = watched()
    row = tables.overflow([run]).iloc[0]
    assert row["kept"] and row["right"] and row["finite"]
    assert (row["applied_again"], row["said"], row["scale"]) == (1, "nothing", 8.0)
    # Every finite step obeys the rule, those with momentum from before included.
    assert run.record.series["right"] == [1.0] * 3 + [0.0] * 4 + [1.0] * 5


@pytest.mark.parametrize(
    ("does", "column", "value"),
    [
        ({"touches": 5}, "kept", False),
        ({"breaks": 9}, "finite", False),
        ({"loses": 8}, "right", False),
        ({"skips": 8}, "applied_again", 2),
        ({"grows": 7}, "scale", math.inf),
        ({"warns": 6}, "said", "warning"),
        ({"fails": 6}, "said", "error"),
    ],
)
def test_what_a_scaler_does_wrong_or_says_is_seen(
    does: dict[str, int], column: str, value: Any
) -> None:
    assert tables.overflow([watched(**does)]).iloc[0][column] == value


def test_what_is_said_is_kept_word_for_word_with_its_step() -> None:
    row = tables.sentences([watched(warns=6)]).iloc[0]
    assert (row["step"], row["sentence"]) == (3, "head")


def test_what_is_said_while_a_host_starts_is_not_about_scales() -> None:
    assert tables.overflow([watched(warns=2)]).iloc[0]["said"] == "nothing"


def test_lines_past_python_s_standard_error_are_heard() -> None:
    with listening() as heard:
        os.write(2, b"from below\n")
        print("from Python", file=sys.__stderr__)
        warnings.warn("a warning", stacklevel=1)
    assert {"from below", "a warning"} <= set(heard)


def test_a_clip_before_unscaling_is_seen() -> None:
    of = settings("clipping")
    batches = plans.make(of, 0)

    class ClippedScaled(Scripted):
        scaling = 1.0

        def step(self, batch: Any) -> None:
            scaled = batch * np.float32(self.scaling)
            norm = np.sqrt((scaled**2).sum())
            super().step(scaled * min(1.0, of.clip_norm / norm) / self.scaling)

    pair = [ClippedScaled(of), ClippedScaled(of)]
    same = training.clip(of, pair, batches)
    assert not any(same.series["unequal"]) and all(same.series["right"])
    pair = [ClippedScaled(of), ClippedScaled(of)]
    pair[1].scaling = of.large
    assert sum(training.clip(of, pair, batches).series["unequal"]) > 100


def test_the_clip_of_the_experiment_shortens_some_gradients_and_not_all() -> None:
    of = settings("clipping")
    assert 5 < plans.longer_than(plans.make(of, 0), of.clip_norm) < of.after - 5


def test_the_rule_of_a_step_refuses_one_that_is_a_hundredth_off() -> None:
    of = settings("overflow")
    batch, before = np.ones(plans.SHAPE, np.float32), np.ones(plans.SHAPE, np.float32)
    assert Law(of).holds(batch, before, before - np.float32(of.rate) * batch)
    assert not Law(of).holds(batch, before, before - np.float32(1.01 * of.rate) * batch)
    assert not Law(of).holds(batch, before, before * np.float32(math.nan))


# -- backends ------------------------------------------------------------------------


def short(situation: str, subject: str) -> Settings:
    """Return a run that starts near its limit."""
    if situation == "zeros":
        changes = {"initial": 2.0**115, "zeros": 15}
    elif subject == PEER:
        changes = {"initial": 2.0**-120, "overflows": 40}
    else:
        changes = {"initial": 8.0, "overflows": 110}
    return settings(situation, subject, after=5, asked_every=10, **changes)


def row_of(backend: str, table: str, subject: str) -> Any:
    situation = "overflow" if table == "sentences" else table
    run = observed(backend, situation, subject)
    return getattr(tables, table)([run]).iloc[0]


@cache
def observed(backend: str, situation: str, subject: str) -> tables.Observed:
    framework = {"pytorch": "torch", "tf": "tensorflow"}[backend]
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    of = short(situation, subject)
    outcome = training.train(dataclasses.asdict(of), 0, backend, "cpu")
    return seen(backend, of, outcome)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_no_scaler_leaves_a_trace_of_steps_that_overflow(
    backend: str, subject: str
) -> None:
    assert row_of(backend, "overflow", subject)["kept"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("subject", [WARNS, ON_DEVICE])
def test_lockstep_stops_at_its_floor_says_so_and_trains_on(
    backend: str, subject: str
) -> None:
    row = row_of(backend, "overflow", subject)
    assert (row["scale"], row["applied_again"]) == (1.0, 1)
    assert row["right"] and row["finite"]
    heard = row_of(backend, "sentences", subject)["sentence"]
    assert row["said"] == "warning" and "not finite: head;" in heard


@pytest.mark.parametrize("backend", BACKENDS)
def test_lockstep_stops_the_run_where_it_was_asked_to(backend: str) -> None:
    row = row_of(backend, "sentences", RAISES)
    assert row_of(backend, "overflow", RAISES)["said"] == "error"
    assert row["step"] == 100 and "not finite: head;" in row["sentence"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_published_of_a_peer_is_what_it_does_here(backend: str) -> None:
    row = row_of(backend, "overflow", PEER)
    assert (row["scale"], row["said"], row["applied_again"]) == (0.0, "nothing", 1)
    assert not row["right"] and not row["finite"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("subject", [ON_DEVICE, PEER])
def test_a_clip_does_not_depend_on_the_scale(backend: str, subject: str) -> None:
    row = row_of(backend, "clipping", subject)
    assert row["unequal"] == 0 and row["right"] == row["steps"] and row["longer"] > 0


def test_only_the_scale_of_keras_grows_to_infinity() -> None:
    keras, torch = (row_of(backend, "zeros", PEER) for backend in ("tf", "pytorch"))
    assert keras["scale"] == math.inf and keras["left_out"] == 5
    assert torch["scale"] == 2.0**127 and torch["wrong"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("subject", [WARNS, ON_DEVICE])
def test_lockstep_s_scale_stays_finite_while_it_only_grows(
    backend: str, subject: str
) -> None:
    row = row_of(backend, "zeros", subject)
    assert math.isfinite(row["scale"]) and row["skipped"] == 0


@pytest.mark.parametrize("backend", ["pytorch", "tf"])
def test_the_largest_scale_makes_right_steps(backend: str) -> None:
    row = row_of(backend, "zeros", WARNS)
    assert row["applied_again"] == 1 and row["wrong"] == 0
