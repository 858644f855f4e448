"""Several workers, workers that crash, sweeps: on a task that trains nothing."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import tasks
from harness.declarations import declare
from harness.declarations.declare import SCALES, Experiment
from harness.errors import HarnessError
from harness.judgement import compare
from harness.pages.findings import Answered, finding_page
from harness.processes.children import Children, Conversation
from harness.processes.cluster import NodeLostError
from harness.records.files import Store, read
from harness.records.record import Record
from harness.runs import run, workers
from harness.runs.run import Request
from harness.tests import toy_worker
from lockstep import registry

TEXT = """question = "Does it go on?"
title = "Toy"
task = "toy"
backends = ["reference", "pytorch"]
budget_minutes = 1
[fixed]
steps = 1
[vary]
arm = ["plain", "wrapped"]
"""
PREDICTION = """
[[primary]]
name = "worse"
claim = "The wrapped arm is worse"
metric = "loss"
arm = { arm = "wrapped" }
against = { arm = "plain" }
effect = "difference"
low = 0.0
because = "it is made up so"
"""
SWEEP = """
[tune]
seeds = 3
metric = "loss"
values = { rate = [0.01, 0.03, 0.1, 0.3, 1.0] }
"""


@pytest.fixture(autouse=True)
def toy_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let declarations and workers know the task; neither backend is imported."""
    monkeypatch.setattr(declare, "TASKS", (*tasks.TASKS, "toy"))
    monkeypatch.setattr(declare, "runs_on", lambda task: ["reference", "pytorch"])
    paths = [*tasks.__path__, str(toy_worker.FOLDER)]
    monkeypatch.setattr(tasks, "__path__", paths)
    monkeypatch.setattr(workers, "MODULE", "harness.tests.toy_worker")
    monkeypatch.setattr(registry, "installed", lambda name: True)


def toy(folder: Path, tuned: bool = False, seeds: int = 4) -> Experiment:
    """Return an experiment of two arms on two backends."""
    text = TEXT if tuned else TEXT.replace("steps = 1", "steps = 1\nrate = 0.1")
    for name in SCALES:
        text += f'[scale.{name}]\nseeds = {seeds}\nbecause = "toy"\n'
    path = folder / "toy.toml"
    path.write_text(text + PREDICTION + (SWEEP if tuned else ""), "utf-8")
    return declare.read(path)


def records(
    root: Path, backend: str = "reference", home: str = "local"
) -> list[Record]:
    return read(root / home / "toy" / f"{backend}.jsonl")


def sweep(experiment: Experiment, root: Path, **options: Any) -> list[run.Report]:
    return run.sweep([experiment], Request("quick", root=root, **options))


def outcomes(root: Path) -> dict[tuple[str, str], Any]:
    return {
        (backend, record.id): record.outcome
        for backend in ("reference", "pytorch")
        for record in records(root, backend)
    }


# -- several workers -------------------------------------------------------------------


def test_outcomes_do_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    experiment = toy(tmp_path, tuned=True)
    for jobs in (1, 2):
        sweep(experiment, tmp_path / str(jobs), jobs=jobs)
    assert len(outcomes(tmp_path / "1")) == 2 * 5 * 3 + 2 * 2 * 4
    assert outcomes(tmp_path / "2") == outcomes(tmp_path / "1")


# -- crashes ---------------------------------------------------------------------------


FAILS = {
    "kill 2": "the worker process ended (signal 9)",
    "exit 2": "the worker process ended (exit status 7)",
    "raise 2": "RuntimeError: as it was asked",
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("jobs", "fails"),
    [
        *((2, fails) for fails in FAILS),
        (1, "raise 2"),
        pytest.param(1, "kill 2", marks=pytest.mark.soak),
        pytest.param(1, "exit 2", marks=pytest.mark.soak),
    ],
)
def test_a_run_that_fails_is_an_error_and_the_rest_goes_on(
    jobs: int, fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = toy(tmp_path)
    monkeypatch.setenv("TOY_FAILS", fails)
    reports = sweep(experiment, tmp_path, jobs=jobs)
    for report in reports:
        assert report.state == "done" and report.failed
        assert report.counts == {"ok": 6, "error": 2}
        bad = [r for r in records(tmp_path, report.backend) if r.status == "error"]
        assert {(record.seed, record.reason) for record in bad} == {(2, FAILS[fails])}
        assert all(r.code.digest and r.duration is not None for r in bad)
    monkeypatch.delenv("TOY_FAILS")
    for report in sweep(experiment, tmp_path, jobs=jobs):
        assert (report.settled, report.counts, report.failed) == (6, {"ok": 2}, False)


def test_three_crashes_in_a_row_stop_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = toy(tmp_path)
    monkeypatch.setenv("TOY_FAILS", "start")
    for report in sweep(experiment, tmp_path, jobs=2):
        assert (report.state, report.counts.total()) == ("stopped", 0)
        assert "3 worker processes in a row ended" in report.reason
        assert "signal 9. 8 runs are missing" in report.reason
    assert list(tmp_path.rglob("*.jsonl")) == []


class LosingANode(Children):
    """Stands for two nodes of a cluster; the second is lost while both do a run.

    Its core does not come back: the worker that is to follow it finds none.
    """

    cores = 2

    def __init__(self, address: str) -> None:
        super().__init__()
        self.started = 0
        self.both = threading.Barrier(2, timeout=60)

    def converse(self, module: str, arguments: Sequence[str]) -> Conversation:
        conversation = super().converse(module, arguments)
        self.started += 1
        node, calls, receive = self.started, Counter[str](), conversation.receive

        def receive_or_lose() -> str | None:
            """The first line is an introduction, the second the answer to a run."""
            calls["receive"] += 1
            if node <= 2 and calls["receive"] == 2:
                self.both.wait()
            if (node, calls["receive"]) in {(2, 2), (3, 1)}:
                conversation.stop()
                raise NodeLostError(f"worker {node} lost its node")
            return receive()

        conversation.receive = receive_or_lose  # type: ignore[method-assign]
        return conversation


def test_the_runs_of_a_lost_node_are_done_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = toy(tmp_path)
    sweep(experiment, tmp_path / "alone")
    monkeypatch.setattr(run, "Cluster", LosingANode)
    reports = sweep(experiment, tmp_path / "lost", jobs=2, cluster="auto")
    assert [(report.state, report.counts) for report in reports] == [
        ("done", {"ok": 8})
    ] * 2
    # None was done twice.
    assert len(outcomes(tmp_path / "lost")) == sum(
        len(records(tmp_path / "lost", name)) for name in ("reference", "pytorch")
    )
    assert outcomes(tmp_path / "lost") == outcomes(tmp_path / "alone")


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_cannot_be_written_ends_everything_in_one_sentence(
    jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: Store, record: Record) -> None:
        raise HarnessError("the disk is full")

    monkeypatch.setattr(Store, "append", refuse)
    before = threading.active_count()
    with pytest.raises(HarnessError, match="the disk is full"):
        sweep(toy(tmp_path), tmp_path, jobs=jobs)
    end = time.monotonic() + 60
    while threading.active_count() > before:
        assert time.monotonic() < end, "a thread goes on"
        time.sleep(0.05)


# -- sweeps ----------------------------------------------------------------------------


def rates(of: list[Record]) -> Counter[tuple[str, float]]:
    return Counter((r.config["arm"], r.config["rate"]) for r in of if r.seed < 1000)


CHOSEN = {("plain", 0.1): 4, ("wrapped", 0.3): 4}


def test_all_backends_run_the_value_chosen_on_the_first_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(toy(tmp_path, tuned=True), tmp_path, jobs=2)
    assert rates(records(tmp_path)) == rates(records(tmp_path, "pytorch")) == CHOSEN
    seeds = {record.seed for record in records(tmp_path)}
    assert seeds == {0, 1, 2, 3, 1000, 1001, 1002}
    assert {record.seed for record in records(tmp_path, "pytorch")} == {0, 1, 2, 3}
    out = capsys.readouterr().out
    assert "toy, reference, validation: 30 of 30 runs" in out
    lines = out.partition("chosen by validation:\n")[2].splitlines()
    for arm, rate in CHOSEN:
        assert any(f"  arm {arm}: rate {rate:g} (loss " in line for line in lines)


def test_a_sweep_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = toy(tmp_path, tuned=True)
    monkeypatch.setenv("TOY_FAILS", "kill 1001")
    first, second = sweep(experiment, tmp_path)
    # Ten runs have this seed: the third of them in a row ends it.
    assert first.state == second.state == "stopped"
    assert first.counts["error"] == 3
    assert "got 2 of 2 arms that lack some" in second.reason
    monkeypatch.delenv("TOY_FAILS")
    first, second = sweep(experiment, tmp_path)
    assert (first.failed, second.failed) == (False, False)
    assert rates(records(tmp_path)) == rates(records(tmp_path, "pytorch")) == CHOSEN
    first, second = sweep(experiment, tmp_path)
    assert first.counts.total() == second.counts.total() == 0


def test_without_its_first_backend_recorded_choices_are_used(tmp_path: Path) -> None:
    experiment = toy(tmp_path, tuned=True)
    (report,) = sweep(experiment, tmp_path, backends=["pytorch"])
    assert report.state == "stopped"
    assert "expected all validation runs of [tune] on reference" in report.reason
    sweep(experiment, tmp_path, backends=["reference"], publish=True)
    (report,) = sweep(experiment, tmp_path, backends=["pytorch"])
    assert (report.state, report.counts["ok"]) == ("done", 8)
    assert rates(records(tmp_path, "pytorch")) == CHOSEN


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
