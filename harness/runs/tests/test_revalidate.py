"""Stale records are verified by one run of each group, or all of them made anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.declarations.declare import Experiment
from harness.errors import HarnessError
from harness.records.code import Sources
from harness.records.files import read
from harness.records.log import Log, read_lines
from harness.records.record import FIRST_KEYS, Code, Record, latest
from harness.records.staleness import staleness_of
from harness.records.verified import read_verified
from harness.runs import revalidate, run
from harness.runs.revalidate import Revalidation, StaleReport
from harness.runs.run import Request
from harness.runs.tests.test_jobs import sweep, toy, toy_task  # noqa: F401

OTHER = Code(None, None, "0" * 16)
"""Code that stands in no file."""

Change = Callable[[Record], Record]


def same(record: Record) -> Record:
    return record


def moved(by: float, arm: str = "plain") -> Change:
    """Return a change of the losses of an arm."""

    def change(record: Record) -> Record:
        here = by if record.config["arm"] == arm else 0.0
        return replace(record, summary={"loss": record.summary["loss"] * (1 + here)})

    return change


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """Two arms on the reference, four seeds each, with fresh records."""
    made = toy(tmp_path)
    sweep(made, tmp_path, backends=["reference"])
    return made


def path_in(root: Path) -> Path:
    return root / "local" / "toy" / "reference.jsonl"


def rewrite(root: Path, change: Change, first: bool = False) -> None:
    """Write records as other code would have, in schema 1 if they are the ``first``."""
    path = path_in(root)
    made = [change(replace(record, code=OTHER)) for record in read(path)]
    lines = [record.as_json() for record in made]
    if first:
        lines = [{**{k: line[k] for k in FIRST_KEYS}, "schema": 1} for line in lines]
    path.unlink()
    with Log(path) as log:
        for line in lines:
            log.append(line)


def revalidated(experiment: Experiment, root: Path) -> StaleReport:
    asked = Request("quick", ["reference"], root=root, command="run toy --stale")
    (report,) = run.sweep([experiment], asked, Revalidation)
    assert isinstance(report, StaleReport)
    return report


def stale(root: Path) -> int:
    return staleness_of(path_in(root).parent, Sources()).stale


def test_fresh_records_are_left_alone(experiment: Experiment, tmp_path: Path) -> None:
    before = path_in(tmp_path).read_bytes()
    report = revalidated(experiment, tmp_path)
    assert (report.groups, report.settled, report.failed) == (0, 8, False)
    assert path_in(tmp_path).read_bytes() == before
    assert not (path_in(tmp_path).with_name("reference.verified.jsonl")).exists()


def test_equal_outcomes_verify_their_groups(
    experiment: Experiment, tmp_path: Path
) -> None:
    rewrite(tmp_path, same)
    before = path_in(tmp_path).read_bytes()
    assert stale(tmp_path) == 8
    report = revalidated(experiment, tmp_path)
    assert (report.groups, report.covered, report.superseded) == (2, 8, 0)
    assert "2 groups are as before, compared to the bit because the" in str(report)
    verified = read_verified(path_in(tmp_path).with_name("reference.verified.jsonl"))
    assert [line.comparison for line in verified] == ["bits", "bits"]
    assert {line.record for line in verified} <= {
        r.digest for r in read(path_in(tmp_path))
    }
    assert path_in(tmp_path).read_bytes() == before
    assert stale(tmp_path) == 0
    assert revalidated(experiment, tmp_path).groups == 0


def test_a_group_that_changed_is_made_anew_and_nothing_is_edited(
    experiment: Experiment, tmp_path: Path
) -> None:
    rewrite(tmp_path, moved(by=1e-6))
    before, old = path_in(tmp_path).read_bytes(), read(path_in(tmp_path))
    report = revalidated(experiment, tmp_path)
    assert (report.superseded, report.covered, report.failed) == (4, 4, False)
    assert "Records made anew: 4." in str(report)
    said = 'arm "plain", seed 0: the outcome is not equal: 1 of 1 numbers differ'
    assert said in str(report)
    assert path_in(tmp_path).read_bytes().startswith(before)
    new = read(path_in(tmp_path))[len(old) :]
    by_id = {record.id: record for record in old}
    assert {r.supersedes for r in new} == {by_id[r.id].digest for r in new}
    assert {(r.config["arm"], r.scale, r.command) for r in new} == {
        ("plain", "quick", "run toy --stale")
    }
    assert {r.prediction for r in new} == {experiment.prediction}
    counting = {r.id: r for r in latest(read(path_in(tmp_path)))}
    assert all(counting[r.id] == r for r in new)
    assert stale(tmp_path) == 0


def test_an_interrupted_revalidation_goes_on(
    experiment: Experiment, tmp_path: Path
) -> None:
    rewrite(tmp_path, moved(by=0.1))
    # The outcome of one seed is what it was: alone it would verify the group.
    revalidated(experiment, tmp_path)
    whole = path_in(tmp_path).read_bytes().splitlines(keepends=True)
    path_in(tmp_path).write_bytes(b"".join(whole[:-2]))
    assert stale(tmp_path) == 2
    report = revalidated(experiment, tmp_path)
    assert (report.groups, report.superseded, report.covered) == (1, 2, 0)
    assert len(read(path_in(tmp_path))) == len(whole)
    assert stale(tmp_path) == 0


def test_a_group_that_began_to_change_is_not_verified_by_a_later_seed(
    experiment: Experiment, tmp_path: Path
) -> None:
    def first_seed(record: Record) -> Record:
        return record if record.seed else moved(by=0.1)(record)

    rewrite(tmp_path, first_seed)
    revalidated(experiment, tmp_path)
    whole = path_in(tmp_path).read_bytes().splitlines(keepends=True)
    assert len(whole) == 8 + 4
    path_in(tmp_path).write_bytes(b"".join(whole[:9]))
    report = revalidated(experiment, tmp_path)
    assert (report.superseded, report.covered, report.changes) == (3, 0, [])


@pytest.mark.parametrize(("by", "equal"), [(1e-5, True), (1e-3, False)])
def test_records_of_an_unknown_processor_are_compared_within_a_tolerance(
    by: float, equal: bool, experiment: Experiment, tmp_path: Path
) -> None:
    def on_another_machine(record: Record) -> Record:
        return replace(moved(by)(record), environment="00000000")

    rewrite(tmp_path, on_another_machine, first=True)
    assert {r.schema for r in read(path_in(tmp_path))} == {1}
    report = revalidated(experiment, tmp_path)
    assert (report.superseded == 0) is equal
    assert "within 1e-4 because an environment is unknown" in str(report)
    assert stale(tmp_path) == 0


def test_a_run_that_fails_leaves_its_group_stale(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(tmp_path, same)
    monkeypatch.setenv("TOY_FAILS", "raise 0")
    report = revalidated(experiment, tmp_path)
    assert report.failed and report.counts["error"] == 2
    assert "RuntimeError: as it was asked (2 x)" in str(report)
    assert stale(tmp_path) == 8
    monkeypatch.delenv("TOY_FAILS")
    assert revalidated(experiment, tmp_path).covered == 8


def test_what_cannot_be_repeated_is_left_and_said_to_be(
    experiment: Experiment, tmp_path: Path
) -> None:
    def elsewhere(record: Record) -> Record:
        device = "cuda" if record.seed == 1 else "cpu"
        return replace(record, subject={**record.subject, "device": device})

    rewrite(tmp_path, elsewhere)
    fewer = replace(
        experiment,
        scales={n: replace(s, seeds=3) for n, s in experiment.scales.items()},
    )
    report = revalidated(fewer, tmp_path)
    assert report.covered == 4
    said = "2 stale records were left: they are of the device cuda; add --device cuda."
    assert said in str(report)
    said = "2 stale records were left: the experiment no longer declares their runs."
    assert said in str(report)


def test_what_measures_time_is_made_anew(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revalidate, "TIMED", ("toy",))
    rewrite(tmp_path, moved(by=0.5))
    report = revalidated(experiment, tmp_path)
    assert (report.superseded, report.covered, report.changes) == (8, 0, [])


def test_a_folder_without_records_stays_as_it_is(tmp_path: Path) -> None:
    made = toy(tmp_path)
    assert revalidated(made, tmp_path).groups == 0
    assert not (tmp_path / "local").exists()


def test_a_damaged_verification_stops_before_any_work(
    experiment: Experiment, tmp_path: Path
) -> None:
    rewrite(tmp_path, same)
    path = path_in(tmp_path).with_name("reference.verified.jsonl")
    path.write_text(json.dumps({"id": "x"}) + "\n")
    before = path_in(tmp_path).read_bytes()
    with pytest.raises(HarnessError, match=r"verified\.jsonl, line 1: expected"):
        revalidated(experiment, tmp_path)
    assert path_in(tmp_path).read_bytes() == before
    assert len(read_lines(path)) == 1
