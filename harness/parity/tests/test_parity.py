"""Parity: verdicts on cases, tables of tolerances and excuses, and what is replayed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.parity import drivers
from harness.parity import replay as replaying
from harness.parity.cases import FAMILIES, GOLDEN, Case, read_cases
from harness.parity.command import plan_backend
from harness.parity.tables import Entry
from harness.parity.tests.judged import MULTITASK, changed, judged, single
from harness.processes.children import ROOT
from lockstep import registry

# Verdicts


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (changed(MULTITASK, family="momentum"), "cannot interpret the family"),
        (changed(MULTITASK, inputs={"tempo": 3}), "cannot interpret the key 'tempo'"),
        (
            changed(MULTITASK, inputs={"optimizer": {"name": "Lion", "args": {}}}),
            "cannot interpret the optimizer 'Lion'",
        ),
        (
            changed(MULTITASK, inputs={"wrapper": "Ema(optimizer)"}),
            "cannot interpret the wrapper",
        ),
        (
            changed(MULTITASK, expected={"raises": "TypeError"}),
            "expected TypeError, got no error",
        ),
    ],
)
def test_what_cannot_be_interpreted_fails(spoilt: Case, reason: str) -> None:
    row = judged(spoilt)
    assert row.status == "failed"
    assert reason in row.reason


def test_the_first_divergence_is_named_with_both_values() -> None:
    steps = json.loads(json.dumps(MULTITASK.expected["steps"]))
    steps[3]["slots"]["momentum"]["never"][1] += 0.5
    row = judged(changed(MULTITASK, expected={"steps": steps}))
    assert row.status == "failed"
    first = row.first_divergence
    assert first is not None
    assert (first.step, first.quantity) == (3, "slots/momentum/never")
    assert first.index == [1]
    assert "0x" in first.got
    assert "after step 4" in row.reason


def test_a_quantity_that_the_backend_lacks_fails() -> None:
    steps = json.loads(json.dumps(MULTITASK.expected["steps"]))
    steps[0]["non_slots"] = {"beta1_power": 0.9}
    row = judged(changed(MULTITASK, expected={"steps": steps}))
    assert row.status == "failed"
    assert "got nothing" in row.reason


# Planning


def test_each_case_has_one_whole_face_and_a_tenth_in_the_others() -> None:
    backend = registry.find("tf")
    cases = read_cases(GOLDEN, ["multitask", "base_optimizers"])
    plan, skipped = plan_backend(cases, backend, backend.modes, everything=False)
    assert not skipped
    assert {c.id for c in plan["eager"]} == {
        c.id for c in cases if c.kind != "sparse_without_dense_shape"
    }
    for mode in ("function", "graph"):
        kinds = {(c.family, c.kind) for c in plan[mode]}
        assert kinds == {(c.family, c.kind) for c in plan["eager"]}
        assert len(plan[mode]) < len(cases) / 2
    assert "multitask-p-039" in {c.id for c in plan["v1"]}


def test_the_published_report_has_every_family() -> None:
    path = ROOT / "results" / "parity" / "report.json"
    families = {row["family"] for row in json.loads(path.read_text("utf-8"))}
    assert families == set(FAMILIES), "publish the report again"


# Tolerances


def test_a_distance_may_be_counted_in_what_was_there_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """8 - 7.75 is off by a spacing of 8, 32 of those of 0.25."""

    class Falling:
        INPUTS = tuple(MULTITASK.inputs)
        EXPECTED = tuple(MULTITASK.expected)

        def replay(self, case: Case, driver: Any) -> Any:
            yield {"weight": single(8.0)}
            yield {"weight": single(0.25 + 2**-20)}

        def expectations(self, case: Case) -> Any:
            yield {"weight": single(8.0)}
            yield {"weight": single(0.25)}

    monkeypatch.setitem(replaying.BY_FAMILY, "multitask", Falling())
    driver = drivers.load("reference")
    for carried, ulp, status in ((True, 1, "passed"), (False, 1, "failed")):
        entry = Entry(ulp=ulp, reason="a reason", carried=carried)
        monkeypatch.setattr(replaying, "tolerance", lambda *_, entry=entry: entry)
        row, (first, second) = replaying.replay(MULTITASK, driver)
        assert (first.distance.ulp, first.carried) == (0, 0)
        assert (second.distance.ulp, second.carried) == (32, 1)
        assert row.status == status
