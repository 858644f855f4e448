"""``harness check`` compares a new run of each arm with its record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.declarations.declare import Experiment
from harness.errors import HarnessError
from harness.runs import check, run
from harness.runs.tests.toy import toy, toy_task

__all__ = ["toy_task"]


@pytest.fixture
def published(tmp_path: Path, toy_task: None) -> Experiment:
    """An experiment of two arms with published records of one backend."""
    experiment = toy(tmp_path).model_copy(update={"backends": ("reference",)})
    run.sweep([experiment], run.Request("quick", root=tmp_path, publish=True))
    return experiment


def change(root: Path, to: Callable[[dict[str, float]], dict[str, float]]) -> None:
    """Change the summaries of the records of the wrapped arm."""
    path = root / "toy" / "reference.jsonl"
    lines: list[Any] = list(map(json.loads, path.read_text("utf-8").splitlines()))
    for line in lines:
        if line["config"]["arm"] == "wrapped":
            line["summary"] = to(line["summary"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (lambda value: value, "equal"),
        (lambda value: value * (1 + 1e-5), "close"),
        (lambda value: value * 1.01, "different"),
    ],
)
def test_one_seed_of_each_arm_is_compared_and_nothing_is_written(
    to: Callable[[float], float], expected: str, published: Experiment, tmp_path: Path
) -> None:
    change(tmp_path, lambda summary: {k: to(v) for k, v in summary.items()})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    checks = list(check.check(published, root=tmp_path))
    assert [each.result for each in checks] == ["equal", expected]
    assert str(checks[0]) == 'reference, arm "plain", seed 0: equal to the bit'
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}


def test_a_number_that_runs_no_longer_measure_is_counted_and_a_new_one_differs(
    published: Experiment, tmp_path: Path
) -> None:
    change(tmp_path, lambda summary: {**summary, "old": 1.0})
    _, wrapped = check.check(published, root=tmp_path)
    assert (wrapped.result, wrapped.detail[:9]) == ("equal", "1 numbers")
    change(tmp_path, lambda summary: {})
    _, wrapped = check.check(published, root=tmp_path)
    assert wrapped.result == "different" and "without a record" in wrapped.detail


def test_a_run_that_crashes_is_different(
    published: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_FAILS", "kill 0")
    checks = list(check.check(published, root=tmp_path))
    assert [each.result for each in checks] == ["different"] * 2
    assert "signal 9" in str(checks[0])


def test_what_cannot_be_checked_is_one_sentence(
    published: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HarnessError, match="expected records of reference on xpu"):
        list(check.check(published, device="xpu", root=tmp_path))
    monkeypatch.setattr(check, "TIMED", ("toy",))
    with pytest.raises(HarnessError, match="got one that measures time"):
        list(check.check(published, root=tmp_path))
