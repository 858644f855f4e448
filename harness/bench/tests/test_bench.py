"""Benchmarks: the answer and the verdicts follow the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bench.compare import (
    PROCESSES,
    Effect,
    compare,
    controls_line,
    effect_of,
    verdict,
)
from harness.bench.declare import Row, find, known
from harness.judgement.finding import Finding
from harness.tasks.overhead.shapes import MODELS, ZEROS, arrays, gradients
from harness.tests.benched import write_times
from harness.tests.painting import paint

ROW = {"backend": "pytorch", "setup": {}, "what": "x"}
OVERHEAD = find("multitask_overhead")
GOALS = sum(row.goal is not None for row in OVERHEAD.rows)


def finding_of(root: Path) -> Finding:
    finding = compare(OVERHEAD, root)
    assert finding is not None
    return finding


def test_without_records_there_is_no_finding(tmp_path: Path) -> None:
    assert compare(OVERHEAD, tmp_path) is None


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("ours", "spread", "expected"),
    [
        (0.4, 0.01, "faster"),
        (3.0, 0.01, "slower"),
        (1.0, 0.01, "as fast"),
        (1.0, 0.9, "undecided"),
    ],
)
def test_every_verdict_is_reached(
    ours: float, spread: float, expected: str, tmp_path: Path
) -> None:
    write_times(OVERHEAD, tmp_path, {"ours": ours, "loop": 1.0}, spread=spread)
    finding = finding_of(tmp_path)
    assert expected in finding.verdict and "," not in finding.verdict
    rows = finding.tables["rows"]
    assert set(rows[~rows["control"]]["verdict"]) == {expected}
    assert set(rows[rows["control"]]["verdict"]) == {""}
    assert len(finding.tables["goals"]) == GOALS


def test_a_gpu_has_rows_of_its_own_without_verdicts(tmp_path: Path) -> None:
    write_times(OVERHEAD, tmp_path, {"ours": 1.0}, spread=0.0)
    before = finding_of(tmp_path)
    assert "on a GPU" not in before.tables
    write_times(OVERHEAD, tmp_path, {"ours": 3.0}, spread=0.0, device="cuda")
    after = finding_of(tmp_path)
    assert after.answer == before.answer and after.verdict == before.verdict
    assert after.tables["rows"].equals(before.tables["rows"])
    rows = after.tables["on a GPU"]
    assert len(rows) == sum(not row.control for row in OVERHEAD.rows)
    assert set(rows["device"]) == {"cuda"} and "verdict" not in rows
    assert rows[rows["measure"] == "ratio"]["value"].to_numpy() == pytest.approx(3.0)


def test_times_of_a_gpu_alone_are_no_answer(tmp_path: Path) -> None:
    write_times(OVERHEAD, tmp_path, {"ours": 3.0}, device="cuda")
    finding = finding_of(tmp_path)
    assert finding.answer == "Not measured on a CPU yet."
    assert "rows" not in finding.tables and len(finding.tables["on a GPU"])


@pytest.mark.parametrize("processes", [1, PROCESSES - 1])
def test_too_few_processes_decide_nothing(processes: int, tmp_path: Path) -> None:
    write_times(OVERHEAD, tmp_path, {"ours": 0.1}, processes)
    finding = finding_of(tmp_path)
    assert finding.verdict == ""
    assert finding.tables["rows"]["low"].isna().all() == (processes == 1)


def test_the_answer_has_the_value_with_its_interval(tmp_path: Path) -> None:
    write_times(OVERHEAD, tmp_path, {"ours": 1.0, "bare": 2.0}, spread=0.0)
    answer = finding_of(tmp_path).answer
    assert "0.50 [0.50, 0.50] times as long as the bare step with 23M" in answer
    assert "0.50 [0.50, 0.50] times as long with 23M on tf" in answer


def test_a_verdict_needs_the_whole_interval_beyond_the_controls() -> None:
    row, again = Row(**ROW, peer="bare"), Effect(1.0, 0.9, 1.2, PROCESSES)
    for low, high, control, expected in (
        (0.8, 0.99, None, "faster"),
        (0.8, 1.0, None, "undecided"),
        (0.8, 0.99, again, "undecided"),
        (0.8, 0.89, again, "faster"),
        (1.01, 1.2, None, "slower"),
        (1.01, 1.2, again, "undecided"),
        (1.21, 1.3, again, "slower"),
        (0.96, 1.04, None, "as fast"),
        (0.94, 1.04, None, "undecided"),
    ):
        assert verdict(row, Effect(0.9, low, high, PROCESSES), control) == expected
    assert verdict(row, Effect(0.9, 0.8, 0.9, PROCESSES - 1), None) == ""


def test_differences_and_times_are_microseconds_a_step() -> None:
    times = [{"ours": [3e-6] * 9, "bare": [1e-6] * 9}] * PROCESSES
    for measure, expected in (("difference", 2.0), ("time", 3.0), ("ratio", 3.0)):
        effect = effect_of(Row(**ROW, peer="bare", measure=measure), times)
        assert (effect.value, effect.low, effect.high) == pytest.approx(
            (expected, expected, expected), rel=1e-12
        )


def test_the_page_counts_the_controls_that_hold_1(tmp_path: Path) -> None:
    write_times(OVERHEAD, tmp_path, {})
    finding = finding_of(tmp_path)
    controls = sum(row.control for row in OVERHEAD.rows)
    line = controls_line(finding.tables["rows"])
    assert f"{controls} of {controls} of their 95% intervals contain 1" in line
    assert line in finding.small_print
    rows = finding.tables["rows"].copy()
    first = rows.index[rows["control"]][0]
    rows.loc[first, "low"] = 1.01
    assert (
        f"{controls - 1} of {controls} of their 95% intervals contain 1"
        in controls_line(rows)
    )


def test_a_new_measurement_replaces_the_last_one(tmp_path: Path) -> None:
    write_times(OVERHEAD, tmp_path, {"ours": 9.0}, spread=0.0)
    write_times(OVERHEAD, tmp_path, {"ours": 1.0}, 1, spread=0.0, scale="quick")
    rows = finding_of(tmp_path).tables["rows"]
    assert (rows["value"] == 1).all()
    assert set(rows["processes"]) == {1}


def test_a_users_own_times_stand_beside_the_published_ones(tmp_path: Path) -> None:
    write_times(OVERHEAD, tmp_path, {}, spread=0.0)
    write_times(OVERHEAD, tmp_path, {"ours": 2.0}, spread=0.0, publish=False)
    local = finding_of(tmp_path).local
    assert local is not None
    rows = local.tables["rows"]
    assert rows[~rows["control"]]["value"].tolist() == pytest.approx(
        [2.0] * sum(~rows["control"])
    )


def test_rows_without_records_are_listed(tmp_path: Path) -> None:
    write_times(OVERHEAD, tmp_path, {})
    for path in (tmp_path / OVERHEAD.name).glob("*-tf-*.json"):
        path.unlink()
    finding = finding_of(tmp_path)
    assert len(finding.missing) == sum(row.backend == "tf" for row in OVERHEAD.row)
    assert all(line.endswith("not measured yet.") for line in finding.missing)


DRAWN = ("small_steps", *known()[::3])
"""One without intervals, and a third of the others; the soak draws all."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.soak] * (n not in DRAWN)) for n in known()],
)
def test_every_benchmark_can_be_drawn(name: str, tmp_path: Path) -> None:
    # One process has no intervals to draw.
    processes = 1 if name == "small_steps" else PROCESSES
    write_times(find(name), tmp_path, {"ours": 0.05}, processes)
    finding = compare(find(name), tmp_path)
    assert finding is not None
    drawn = paint(finding)
    measures = {row.measure for row in find(name).rows}
    assert ("ratios" in drawn) == ("ratio" in measures)
    assert ("microseconds" in drawn) == (measures != {"ratio"})


def test_the_models_are_what_their_names_say() -> None:
    assert len(MODELS["T25M"]) == 136
    assert sum(array.size for array in arrays("T25M", 0)) == pytest.approx(22.8e6, 0.01)
    assert len(MODELS["S400"]) == 400
    assert sum(array.size for array in arrays("S1000", 0)) == 64_000


@pytest.mark.parametrize("zeros", ZEROS)
def test_a_share_of_the_elements_has_zero_gradients(zeros: str) -> None:
    drawn = gradients("T25M", zeros=zeros)
    flags = [not value.any() for value in drawn]
    whole = sum(value.size for value in drawn)
    share = sum(value.size for value in drawn if not value.any()) / whole
    # The largest tensor is 14% of the model.
    assert share == pytest.approx(ZEROS[zeros], abs=0.14)
    assert any(flags) == (zeros != "none")
