"""Runs: by several workers, after crashes and kills, tuned, refused in one sentence."""

from __future__ import annotations

import importlib.util
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.declarations import declare
from harness.declarations.declare import Experiment
from harness.errors import HarnessError
from harness.judgement import compare
from harness.pages.findings import Answered, finding_page
from harness.processes.environment import child_variables
from harness.records.files import Store, read, read_lines
from harness.records.record import Record
from harness.runs import run, worker
from harness.runs.run import Request
from harness.runs.tests.toy import records, toy, toy_task
from harness.tests.declared import declared
from lockstep import registry
from lockstep.errors import MissingFrameworkError

__all__ = ["toy_task"]

on_toy_task = pytest.mark.usefixtures("toy_task")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def sweep(experiment: Experiment, root: Path, **options: Any) -> list[run.Part]:
    return run.sweep([experiment], Request("quick", root=root, **options))


def outcomes(root: Path) -> dict[tuple[str, str], Any]:
    return {
        (backend, record.id): record.outcome
        for backend in ("reference", "pytorch")
        for record in records(root, backend)
    }


@on_toy_task
def test_outcomes_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    experiment = toy(tmp_path, tuned=True)
    for jobs in (1, 2):
        sweep(experiment, tmp_path / str(jobs), jobs=jobs)
    assert len(outcomes(tmp_path / "1")) == 2 * 5 * 3 + 2 * 2 * 4
    assert outcomes(tmp_path / "2") == outcomes(tmp_path / "1")


# -- crashes and kills -----------------------------------------------------------------

FAILS = {
    "kill 2": "the worker process ended (signal 9)",
    "exit 2": "the worker process ended (exit status 7)",
    "raise 2": "RuntimeError: as it was asked",
}


@on_toy_task
@pytest.mark.parametrize("fails", FAILS)
def test_a_run_that_fails_is_an_error_and_the_rest_goes_on(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = toy(tmp_path)
    monkeypatch.setenv("TOY_FAILS", fails)
    for report in sweep(experiment, tmp_path, jobs=2):
        assert report.failed and not report.stopped
        assert report.counts == {"ok": 6, "error": 2}
        bad = [r for r in records(tmp_path, report.backend) if r.status == "error"]
        assert {(record.seed, record.reason) for record in bad} == {(2, FAILS[fails])}
        assert all(r.code.digest and r.duration is not None for r in bad)
    monkeypatch.delenv("TOY_FAILS")
    for report in sweep(experiment, tmp_path, jobs=2):
        assert (report.settled, report.counts, report.failed) == (6, {"ok": 2}, False)


@on_toy_task
def test_three_crashes_in_a_row_stop_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = toy(tmp_path)
    monkeypatch.setenv("TOY_FAILS", "start")
    for report in sweep(experiment, tmp_path, jobs=2):
        assert report.counts.total() == 0
        reason = "the worker process ended (signal 9), 3 times in a row. 8 runs are"
        assert report.stopped.startswith(reason)
    assert list(tmp_path.rglob("*.jsonl")) == []


@on_toy_task
def test_what_cannot_be_written_ends_everything_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: Store, record: Record) -> None:
        raise HarnessError("the disk is full")

    monkeypatch.setattr(Store, "append", refuse)
    before = threading.active_count()
    with pytest.raises(HarnessError, match="the disk is full"):
        sweep(toy(tmp_path), tmp_path, jobs=2)
    wait_until(lambda: threading.active_count() <= before)


# Its like, without a kill: test_validation_that_was_stopped_goes_on.
@pytest.mark.soak
@needs_torch
def test_a_command_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    tiny = declared(tmp_path)
    code = (
        "import sys; from pathlib import Path; from harness.runs import run; "
        "from harness.declarations import declare\n"
        "experiment = declare.read(Path(sys.argv[1]) / 'tiny.toml')\n"
        "run.sweep([experiment], run.Request('quick', root=Path(sys.argv[1]), jobs=2))"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], env=child_variables()
    )
    path = tmp_path / "local" / "tiny" / "pytorch.jsonl"
    wait_until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 5)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    before = path.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    done = whole.count(b"\n")
    assert 5 <= done < 60

    (report,) = sweep(tiny, tmp_path)

    assert (report.settled, report.counts["ok"]) == (done, 60 - done)
    assert path.read_bytes().startswith(whole)
    assert sorted(record.seed for record in read(path)) == list(range(60))
    environments = read_lines(path.with_name("pytorch.environments.jsonl"))
    assert {record.environment for record in read(path)} == {
        line["id"] for line in environments
    }


# -- tuned values ----------------------------------------------------------------------


def rates(of: list[Record]) -> Counter[tuple[str, float]]:
    return Counter((r.config["arm"], r.config["rate"]) for r in of if r.seed < 1000)


CHOSEN = {("plain", 0.1): 4, ("wrapped", 0.3): 4}


@on_toy_task
def test_all_backends_run_the_value_chosen_on_the_first_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(toy(tmp_path, tuned=True), tmp_path, jobs=2)
    assert rates(records(tmp_path)) == rates(records(tmp_path, "pytorch")) == CHOSEN
    seeds = {record.seed for record in records(tmp_path)}
    assert seeds == {0, 1, 2, 3, 1000, 1001, 1002}
    assert {record.seed for record in records(tmp_path, "pytorch")} == {0, 1, 2, 3}
    out = capsys.readouterr().out
    assert "46 runs to do" in out and "46 of 46 runs, about 0 s left" in out
    assert "toy, reference, validation: 1 of 46 runs" in out
    lines = out.partition("chosen by validation:\n")[2].splitlines()
    for arm, rate in CHOSEN:
        assert any(f"  arm {arm}: rate {rate:g} (loss " in line for line in lines)


@on_toy_task
def test_validation_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = toy(tmp_path, tuned=True)
    monkeypatch.setenv("TOY_FAILS", "kill 1001")
    first, second = sweep(experiment, tmp_path)
    # Ten runs have this seed: the third of them in a row ends it.
    assert first.stopped and second.stopped
    assert first.counts["error"] == 3
    assert "got 2 of 2 arms that lack some" in second.stopped
    monkeypatch.delenv("TOY_FAILS")
    first, second = sweep(experiment, tmp_path)
    assert (first.failed, second.failed) == (False, False)
    assert rates(records(tmp_path)) == rates(records(tmp_path, "pytorch")) == CHOSEN
    first, second = sweep(experiment, tmp_path)
    assert first.counts.total() == second.counts.total() == 0


@on_toy_task
def test_without_its_first_backend_recorded_choices_are_used(tmp_path: Path) -> None:
    experiment = toy(tmp_path, tuned=True)
    (report,) = sweep(experiment, tmp_path, backends=["pytorch"])
    assert "expected all validation runs of [tune] on reference" in report.stopped
    sweep(experiment, tmp_path, backends=["reference"], publish=True)
    (report,) = sweep(experiment, tmp_path, backends=["pytorch"])
    assert (report.failed, report.counts["ok"]) == (False, 8)
    assert rates(records(tmp_path, "pytorch")) == CHOSEN
    assert rates(records(tmp_path, home="toy")) == CHOSEN


@on_toy_task
def test_a_page_has_the_choices_whatever_the_order_of_lines(tmp_path: Path) -> None:
    experiment = toy(tmp_path, tuned=True)
    sweep(experiment, tmp_path, jobs=2)
    before = compare.compare(experiment, tmp_path)
    for path in (tmp_path / "local" / "toy").glob("*.jsonl"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        random.Random(0).shuffle(lines)
        path.write_text("".join(lines), "utf-8")
    after = compare.compare(experiment, tmp_path)
    assert before is not None and after is not None
    assert (after.answer, after.verdicts) == (before.answer, before.verdicts)
    assert all(after.tables[name].equals(t) for name, t in before.tables.items())
    sweeps = before.tables["sweep"]
    page = finding_page(Answered(experiment, after, published=False), {})
    assert "Sweep, 10 rows" in page and "table-sweep.csv" in page
    assert "rate was chosen for each arm among 5 values" in page
    chosen = sweeps[sweeps["chosen"]]
    assert list(chosen["arm"]) == ["plain", "wrapped"]
    assert list(chosen["rate"]) == [0.1, 0.3]
    assert len(before.tables["losses"]) == 2 * 2 * 4
    assert before.missing == []


# -- what cannot be done ---------------------------------------------------------------


def test_what_a_run_raises_is_its_status_and_reason(tmp_path: Path) -> None:
    broken = declare.Run("tiny", "multitask_digits", {"steps": 1}, seed=0)
    outcome = worker.attempt(broken, "pytorch", "cpu")
    assert outcome.status == "error"
    assert outcome.reason.startswith("ValidationError: ")
    assert "\n" not in outcome.reason


@needs_torch
def test_a_device_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    (report,) = sweep(declared(tmp_path), tmp_path, device="xpu")
    assert report.counts.total() == 0
    assert "pytorch: expected the device 'xpu'" in report.stopped
    assert [path for path in tmp_path.rglob("*.jsonl")] == []


def test_a_missing_framework_is_skipped_unless_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: False)
    tiny = declared(tmp_path)
    assert sweep(tiny, tmp_path) == []
    out = capsys.readouterr().out
    assert "pytorch: skipped; " in out and "pip install torch" in out
    with pytest.raises(MissingFrameworkError, match="expected torch to be installed"):
        sweep(tiny, tmp_path, backends=["pytorch"])
    assert not (tmp_path / "local").exists()


def test_a_folder_that_cannot_be_written_stops_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "installed", lambda name: True)
    monkeypatch.setattr(run, "do_runs", lambda *_: pytest.fail("work was done"))
    (tmp_path / "local").write_text("")
    with pytest.raises(HarnessError, match="choose a folder that you may write to"):
        sweep(declared(tmp_path), tmp_path)


def wait_until(claim: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
