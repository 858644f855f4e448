"""Benchmarks: what is declared can be measured, and the answer follows the records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.bench import command
from harness.bench.compare import compare, short
from harness.bench.declare import find, known
from harness.bench.declare import read as read_declared
from harness.errors import HarnessError
from harness.plot import draw
from harness.records.files import read
from harness.records.log import Log
from harness.records.record import Record
from harness.tasks.multitask_overhead.zeros import zero_flags
from harness.tasks.overhead.shapes import MODELS, arrays
from lockstep import registry
from lockstep.spec.errors import UnknownNameError

OVERHEAD = find("multitask_overhead")

SMOKE = """
question = "Does it run?"
title = "Smoke"
task = "multitask_overhead"
answer = "It takes {{}}"
notes = []
peers = {{ bare = "the bare optimizer" }}
rounds = {{ quick = 2 }}

[[row]]
backend = "{backend}"
setup = {{ model = "smoke", zeros = "half" }}
peer = "bare"
what = "four small tensors"
"""


def written(root: Path, factors: Mapping[str, float], publish: bool = True) -> None:
    """Write records in which a variant's time is its factor, in milliseconds."""
    home = root / OVERHEAD.name if publish else root / "local" / OVERHEAD.name
    for backend in OVERHEAD.backends:
        with Log(home / f"{backend}.jsonl") as log:
            for identifier, setup in OVERHEAD.setups(backend).items():
                seconds = {
                    name: [factor * (1 + 0.01 * (k % 5)) / 1e3 for k in range(20)]
                    for name, factor in factors.items()
                }
                subject = {"backend": backend, "device": "cpu", "lockstep": "0"}
                record = Record(
                    experiment=OVERHEAD.name,
                    id=identifier,
                    task=OVERHEAD.task,
                    config=setup,
                    seed=0,
                    subject=subject,
                    environment="",
                    status="ok",
                    reason="",
                    series=seconds,
                    summary={},
                )
                log.append(record.as_json())


def test_without_records_there_is_no_finding(tmp_path: Path) -> None:
    assert compare(OVERHEAD, tmp_path) is None


def test_the_answer_follows_the_records(tmp_path: Path) -> None:
    goals = sum(row.goal is not None for row in OVERHEAD.rows)
    written(tmp_path / "a", {"ours": 1.0, "bare": 2.0, "loop": 4.0})
    finding = compare(OVERHEAD, tmp_path / "a")
    assert finding is not None
    assert "0.50 times on pytorch and 0.50 times on tf" in finding.answer
    assert finding.verdict == f"{goals} of {goals} goals met"
    written(tmp_path / "b", {"ours": 3.0, "bare": 2.0, "loop": 1.0})
    finding = compare(OVERHEAD, tmp_path / "b")
    assert finding is not None
    assert "1.50 times" in finding.answer
    assert finding.verdict == f"0 of {goals} goals met"


def test_the_last_record_of_a_setup_counts(tmp_path: Path) -> None:
    written(tmp_path, {"ours": 9.0, "bare": 1.0, "loop": 1.0})
    written(tmp_path, {"ours": 1.0, "bare": 1.0, "loop": 1.0})
    finding = compare(OVERHEAD, tmp_path)
    assert finding is not None
    assert (finding.tables["ratios"]["ratio"] == 1).all()


def test_a_users_own_times_stand_beside_the_published_ones(tmp_path: Path) -> None:
    written(tmp_path, {"ours": 1.0, "bare": 1.0, "loop": 1.0})
    written(tmp_path, {"ours": 2.0, "bare": 1.0, "loop": 1.0}, publish=False)
    finding = compare(OVERHEAD, tmp_path)
    assert finding is not None
    assert finding.local is not None
    assert (finding.local.tables["ratios"]["ratio"] == 2).all()


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    written(tmp_path, {"ours": 1.0, "bare": 1.0, "loop": 1.0})
    (tmp_path / OVERHEAD.name / "tf.jsonl").unlink()
    finding = compare(OVERHEAD, tmp_path)
    assert finding is not None
    assert len(finding.missing) == sum(row.backend == "tf" for row in OVERHEAD.rows)
    assert all(line.endswith("not measured yet.") for line in finding.missing)


def test_the_figure_is_the_same_bytes_for_the_same_records(tmp_path: Path) -> None:
    written(tmp_path, {"ours": 1.0, "bare": 1.1, "loop": 2.0})
    finding = compare(OVERHEAD, tmp_path)
    assert finding is not None
    drawn = [draw(finding, tmp_path / name)[0] for name in ("first", "second")]
    for kind in ("light", "dark", "pdf", "csv"):
        first, second = (getattr(figure, kind).read_bytes() for figure in drawn)
        assert first == second


def test_the_models_are_what_the_goals_speak_of() -> None:
    assert len(MODELS["T25M"]) == 136
    assert sum(array.size for array in arrays("T25M", 0)) == pytest.approx(22.8e6, 0.01)
    assert len(MODELS["S400"]) == 400
    assert sum(array.size for array in arrays("S1000", 0)) == 64_000
    half = zero_flags("S400", "half")
    assert sum(half) == 200
    assert not any(zero_flags("T25M", "none"))


@pytest.mark.parametrize(
    ("model", "zeros", "words"),
    [("T25", "none", "did you mean 'T25M'"), ("T25M", "hlf", "did you mean 'half'")],
)
def test_unknown_setups_are_answered_with_the_nearest(
    model: str, zeros: str, words: str
) -> None:
    with pytest.raises(UnknownNameError, match=words):
        arrays(model, 0)
        zero_flags(model, zeros)


def test_unknown_names_are_refused_before_anything_is_timed(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="did you mean 'multitask_overhead'"):
        find("multitask_overhed")
    with pytest.raises(HarnessError, match="scale: expected one of"):
        command.bench(OVERHEAD, "big", root=tmp_path)
    with pytest.raises(HarnessError, match="did you mean 'pytorch'"):
        command.bench(OVERHEAD, "quick", ["pytroch"], root=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("backend", OVERHEAD.backends)
def test_a_benchmark_is_measured_and_recorded(backend: str, tmp_path: Path) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    declared = tmp_path / "smoke.toml"
    declared.write_text(SMOKE.format(backend=backend), "utf-8")
    small = read_declared(declared)
    command.bench(small, "quick", publish=True, root=tmp_path)
    records = read(tmp_path / "smoke" / f"{backend}.jsonl")
    assert {record.id for record in records} == set(small.setups(backend))
    for record in records:
        assert set(record.series) == {"ours", "bare", "loop"}
        assert all(len(seconds) == 2 for seconds in record.series.values())
        assert all(second > 0 for times in record.series.values() for second in times)


@pytest.mark.parametrize("name", known())
def test_every_benchmark_has_a_goal_and_a_headline_and_names_its_peers(
    name: str,
) -> None:
    benchmark = find(name)
    assert any(row.goal is not None for row in benchmark.rows)
    assert any(row.headline for row in benchmark.rows)
    assert {row.peer for row in benchmark.rows} == set(benchmark.peers)
    assert "{}" in benchmark.answer


def test_small_ratios_keep_two_digits() -> None:
    assert [short(r) for r in (1.0, 0.613, 0.0049, 0.1)] == [
        "1.00",
        "0.61",
        "0.0049",
        "0.10",
    ]
