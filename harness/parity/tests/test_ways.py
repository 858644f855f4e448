"""A default without strict is right in one of four ways."""

from __future__ import annotations

import warnings
from dataclasses import replace as changed
from typing import Any

import pytest

from harness.parity import drivers, replay
from harness.parity.cases import GOLDEN, read_cases
from harness.parity.replay import WITHOUT_STRICT, judge
from harness.parity.row import WAYS, Row
from harness.parity.tables import differences
from harness.parity.tests.judged import case
from lockstep import registry


def judged(family: str, identifier: str) -> Row:
    return judge(case(family, identifier), "pytorch", "eager")[0]


@pytest.mark.parametrize("backend", sorted(WITHOUT_STRICT))
def test_a_case_of_each_kind_is_right_in_one_of_four_ways(backend: str) -> None:
    kinds = {(c.family, c.kind): c for c in reversed(read_cases(GOLDEN))}
    mode = registry.find(backend).modes[0]
    with warnings.catch_warnings():
        # As in the processes of the command.
        warnings.simplefilter("ignore")
        rows = [judge(case, backend, mode)[0] for case in kinds.values()]
    assert [row for row in rows if row.status == "failed"] == []
    ways = {row.way for row in rows if row.status == "passed"}
    assert ways == set(WAYS.values())


def test_a_documented_case_names_its_difference_and_its_yardstick() -> None:
    floor = judged("loss_scale_dynamic", "loss_scale_dynamic-p-018")
    assert (floor.status, floor.against) == ("passed", "reference")
    assert floor.difference == "dynamic-scale-floor"
    powers = judged("agn", "agn-p-007")
    assert (powers.status, powers.against) == ("passed", "framework rule")
    norm = judged("clip_by_global_norm", "clip_by_global_norm-p-036")
    assert (norm.status, norm.against) == ("passed", "refusal")


@pytest.mark.parametrize(
    ("family", "identifier", "against"),
    [
        ("loss_scale_dynamic", "loss_scale_dynamic-p-018", "reference"),
        ("clip_by_global_norm", "clip_by_global_norm-p-036", "refusal"),
    ],
)
def test_the_original_behaviour_is_wrong_where_a_difference_is_listed(
    family: str, identifier: str, against: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = drivers.load

    def original(backend: str, *rest: Any, **given: Any) -> Any:
        if backend == "pytorch":
            return load("reference")
        return load(backend, *rest, **given)

    monkeypatch.setattr(drivers, "load", original)
    row = judged(family, identifier)
    assert (row.status, row.against) == ("failed", against)


def test_a_difference_that_is_not_listed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "differences", list)
    row = judged("loss_scale_dynamic", "loss_scale_dynamic-p-018")
    assert (row.status, row.against) == ("failed", "recording")


@pytest.mark.parametrize(
    ("backend", "family", "identifier"),
    [
        ("pytorch", "agn", "agn-p-007"),
        ("keras3", "base_optimizers", "base_optimizers-p-004"),
    ],
)
def test_a_framework_rule_is_another_than_the_reference(
    backend: str, family: str, identifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(f"lockstep.{backend}")
    recorded = case(family, identifier)
    row, _ = judge(recorded, backend, "eager")
    assert (row.status, row.against) == ("passed", "framework rule")
    plain = [changed(entry, rule="") for entry in differences()]
    monkeypatch.setattr(replay, "differences", lambda: plain)
    row, _ = judge(recorded, backend, "eager")
    assert (row.status, row.against) == ("failed", "reference")


def test_two_replays_that_are_broken_alike_are_not_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> replay.Replay:
        return [], AttributeError("nothing is here")

    monkeypatch.setattr(replay, "replay_states", broken)
    row = judged("clip_by_global_norm", "clip_by_global_norm-p-036")
    assert row.status == "failed"
    assert "nothing is here" in row.reason
