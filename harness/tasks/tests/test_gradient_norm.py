"""The task of the two clipping functions: its lists, its comparison, its sentences."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.judgement import verdicts
from harness.records.record import Record
from harness.tasks.gradient_norm import findings, training
from harness.tasks.gradient_norm.data import lists_of, recorded_lists
from harness.tasks.gradient_norm.settings import Settings
from harness.tests.makers import made_up, with_metric
from harness.tests.synthetic import record_of
from lockstep.interface import Array
from lockstep.messages.errors import LockstepError

EXPERIMENT = declare.find("gradient_norm")
RANDOM = {"label": "half", "source": "random", "absent": 0.5}
RECORDED = {"label": "recorded", "source": "recorded"}


def settings(**changes: Any) -> Settings:
    base = {"gradients": RANDOM, "tensors": 10, "lists": 3, "clip_norm": 1.0}
    return Settings(**{**base, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gradients": "random"}, "gradients: expected a table"),
        ({"gradients": {**RANDOM, "source": "recordd"}}, "did you mean 'recorded'"),
        ({"gradients": {**RANDOM, "absence": 1}}, "did you mean 'absent'"),
        ({"gradients": {**RANDOM, "absent": 0.97}}, "that leaves a tensor, got 0.97"),
        ({"gradients": {**RANDOM, "absent": -0.1}}, "a share >= 0"),
        ({"gradients": {**RANDOM, "label": ""}}, "gradients.label: expected a text"),
        ({"gradients": {**RECORDED, "absent": 0.5}}, "nothing where recorded, got 0.5"),
        ({"lists": 0}, "lists: expected a whole number > 0"),
        ({"clip_norm": 0.0}, "clip_norm: expected a finite number > 0"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(
    changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(LockstepError, match=sentence):
        settings(**changes)


def test_random_lists_have_the_share_of_zeros_that_is_asked_for() -> None:
    lists = lists_of(settings(), seed=1)
    for each in lists:
        assert sum(not g.any() for g in each.gradients) == 5
        assert each.norm is None
    again, other = lists_of(settings(), seed=1), lists_of(settings(), seed=2)
    sizes = [[g.size for g in a_list[0].gradients] for a_list in (lists, again, other)]
    assert sizes[0] == sizes[1] != sizes[2]


def test_every_seed_of_std_has_a_recorded_list_of_its_own() -> None:
    recorded = recorded_lists()
    assert EXPERIMENT.scale("std").seeds == len(recorded)
    assert all(any(not g.any() for g in each.gradients) for each in recorded)
    (first,) = lists_of(settings(gradients=RECORDED), seed=len(recorded))
    assert first is recorded[0]


@pytest.mark.parametrize("seed", range(19))
def test_a_recorded_norm_is_that_of_its_gradients(seed: int) -> None:
    (each,) = lists_of(settings(gradients=RECORDED), seed)
    squares = sum(float(np.square(g.astype(float)).sum()) for g in each.gradients)
    assert each.norm is not None
    # The recording added up float32 squares in one order, this one doubles.
    assert float(each.norm) == pytest.approx(np.sqrt(squares), rel=3e-7)


class Underestimating:
    """Functions of which the stock one forgets a fifth of the norm, and clips more."""

    def multitask_clip(
        self, gradients: list[Array], clip_norm: float, device: str
    ) -> tuple[list[Array], Array]:
        return list(gradients), np.asarray(5.0, np.float32)

    def stock_clip(
        self, gradients: list[Array], clip_norm: float, device: str
    ) -> tuple[list[Array], Array]:
        halves = [np.asarray(g / 2, np.float32) for g in gradients]
        return halves, np.asarray(4.0, np.float32)


def test_a_norm_that_is_underestimated_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(training.backends, "model", lambda *_: Underestimating())
    config = vars(settings())
    outcome = training.train(config, 0, "tf", "cpu")
    assert outcome.summary["ratio"] == pytest.approx(1.25)
    assert outcome.summary["equal"] == 0
    # Half of the tensors and half of the other entries are zero, whatever clips them.
    assert 0.1 < outcome.summary["unequal"] < 0.4
    recorded = training.train({**config, "gradients": RECORDED}, 0, "tf", "cpu")
    norm = recorded_lists()[0].norm
    assert norm is not None
    assert recorded.series["multitask"] == [float(norm)]


def records_with(ratio: float) -> list[Record]:
    stream = np.random.default_rng(0)
    runs = EXPERIMENT.runs("std")
    made = [made_up(run, "tf", stream) for run in runs]
    return [with_metric(record, "norm ratio", ratio) for record in made]


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "not reproduced"), (1.25, "reproduced")]
)
def test_equal_norms_refute_the_source_and_unequal_ones_confirm_it(
    ratio: float, verdict: str
) -> None:
    table = verdicts.results(EXPERIMENT, records_with(ratio))
    assert verdicts.judge(EXPERIMENT, table) == verdict


def test_the_answer_counts_lists_and_quotes_how_far_norms_are_apart() -> None:
    runs = EXPERIMENT.runs("quick")
    made = [made_up(run, "tf", np.random.default_rng(0)) for run in runs]
    apart = findings.judge(made)
    lists = sum(len(record.series["stock"]) for record in made)
    assert f"for 0 of {lists} lists" in apart.answer
    assert "+250000.00 parts per million" in apart.answer
    assert apart.small_print[0].startswith("Does not hold: on TensorFlow")
    equal = [_equal(record) for record in made]
    same = findings.judge(equal)
    assert f"for {lists} of {lists} lists of gradients." in same.answer
    assert same.small_print[0].startswith("Holds: on TensorFlow")
    assert not findings.match(apart.tables, same.tables)["matches"].any()
    assert findings.match(apart.tables, apart.tables)["matches"].all()


def _equal(record: Record) -> Record:
    stock = record.series["stock"]
    zeros = [0.0] * len(stock)
    return replace(
        record, series={**record.series, "multitask": stock, "unequal": zeros}
    )


@pytest.mark.parametrize("backend", ["tf", "pytorch"])
def test_a_backend_clips_by_both_functions(backend: str) -> None:
    framework = {"tf": "tensorflow", "pytorch": "torch"}[backend]
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    run = EXPERIMENT.runs("quick")[-1]
    outcome = training.train(run.config, run.seed, backend, "cpu")
    record = record_of(run, backend, outcome)
    assert record.status == "ok"
    # Two float32 sums of the same squares, however they are added up.
    assert outcome.summary["ratio"] == pytest.approx(1, abs=1e-6)
    (given,) = lists_of(Settings(**{**run.config, "lists": 1}), run.seed)
    squares = sum(float(np.square(g.astype(float)).sum()) for g in given.gradients)
    assert outcome.series["stock"][0] == pytest.approx(np.sqrt(squares), rel=1e-6)
    if backend == "tf":
        assert outcome.summary["unequal"] == 0
