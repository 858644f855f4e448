"""Workers on slow links: machines in one computer, what is measured and expected."""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
import uuid

import numpy as np
import pytest

from harness.declarations import declare
from harness.declarations.declare import Run
from harness.processes.children import Children
from harness.records.record import Record
from harness.runs.worker import Worker, attempt
from harness.tasks.slow_link import machines, report
from harness.tasks.tests.test_worker_throughput import (
    SECONDS_TO_END,
    marked,
    require_end,
)
from harness.tasks.worker_team.report import expected as expected_steps
from harness.tasks.worker_team.report import queue
from harness.tasks.worker_team.task import PERIODS
from harness.tests.makers import made_up
from lockstep.errors import UnsupportedError

RUNS = declare.find("slow_link").runs("quick")

NEEDS_FRAMEWORKS = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None
    or importlib.util.find_spec("torch") is None,
    reason="needs Ray and PyTorch",
)


def skip_without_machines() -> None:
    try:
        machines.require_machines()
    except UnsupportedError as error:
        pytest.skip(str(error))


def records(expected: float = 1.0, ddp: float = 50.0) -> list[Record]:
    """Return records of workers that take so many times the expected steps."""
    made = []
    for run in RUNS:
        record = made_up(run, "pytorch", np.random.default_rng(0))
        summary = {**record.summary, "link/bandwidth": 12.5e6, "steps/ddp": ddp}
        record = dataclasses.replace(record, summary=summary)
        for period in PERIODS:
            steps = expected_steps(record, period)
            summary[f"steps/{period}"] = expected * steps
        made.append(record)
    return made


# -- machines --------------------------------------------------------------------------


@NEEDS_FRAMEWORKS
@pytest.mark.parametrize(
    ("command", "got"),
    [
        (["sh", "-c", "echo no >&2; exit 1"], "got no;"),
        (["false"], "got exit status 1;"),
        (["no-such-program"], "No such file"),
    ],
)
def test_a_run_without_slow_links_is_skipped_and_no_error(
    command: list[str], got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.require_machines.cache_clear()
    monkeypatch.setattr(machines, "isolated", lambda _: command)
    outcome = attempt(RUNS[0], "pytorch", "cpu")
    assert outcome.status == "skipped"
    assert got in outcome.reason and "as root on Linux" in outcome.reason


def test_a_command_in_its_own_namespaces_sees_no_network_and_leaves_nothing() -> None:
    skip_without_machines()
    mark = uuid.uuid4().hex
    script = "sleep 1000 & ip -br link; echo $$"
    done = subprocess.run(
        machines.isolated(["sh", "-c", script]),
        capture_output=True,
        text=True,
        env={"MARK_OF_TEST": mark},
        timeout=SECONDS_TO_END,
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["lo", "1"]
    assert not marked(mark)


PROGRAM = """
import subprocess, sys
from harness.tasks.slow_link import machines
machines.build(2, 20)
server = machines.answer(machines.address(0))
measure = (
    "from harness.tasks.slow_link.machines import measure;"
    f"print(measure({server})['link/bandwidth'])"
)
command = [sys.executable, "-c", measure]
subprocess.run(machines.on_machine(1, command), check=True)
"""


def test_a_link_carries_what_it_is_limited_to() -> None:
    skip_without_machines()
    done = subprocess.run(
        machines.isolated([sys.executable, "-c", PROGRAM]),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.returncode, done.stderr
    megabits = 8e-6 * float(done.stdout)
    # Of a packet of 1514 bytes, 66 are headers; a burst of 32 kB is not slowed down.
    assert 17 < megabits < 20


def test_a_link_is_measured_by_whoever_answers() -> None:
    link = machines.measure(machines.answer("127.0.0.1"))
    assert link["link/bandwidth"] > 1e6 and 0 < link["link/latency"] < 1


# -- a run -----------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.slow
@NEEDS_FRAMEWORKS
def test_a_run_measures_ddp_and_every_period_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without_machines()
    mark = uuid.uuid4().hex
    monkeypatch.setenv("MARK_OF_TEST", mark)
    run = small_run()
    worker = Worker(run.task, "pytorch", "cpu", 0, Children())
    answer = worker.do(run)
    assert marked(mark)
    how = worker.end()
    require_end(mark)
    assert isinstance(answer, dict) and answer["status"] == "ok", (answer, how)
    made = made_up(run, "pytorch", np.random.default_rng(0))
    assert set(answer["summary"]) == set(made.summary)
    assert min(answer["summary"].values()) > 0
    assert answer["summary"]["link/bandwidth"] < 1e6 * run.config["link_mbit"] / 8


def small_run() -> Run:
    """Return a run of two workers that takes seconds."""
    config = {**RUNS[0].config, "workers": 2, "window": 0.3, "model_mb": 0.1}
    return dataclasses.replace(RUNS[0], config=config)


# -- findings --------------------------------------------------------------------------


def test_the_model_is_asked_with_what_was_measured() -> None:
    [record] = [r for r in records() if r.config["workers"] == 4]
    transfer, center, outgoing = queue(record, 10)[1]
    assert transfer == outgoing == pytest.approx(0.7e6 / 12.5e6)
    assert center == record.summary["seconds/center"]


def test_the_table_compares_with_ddp_and_with_the_model() -> None:
    _, of_four = sorted(records(), key=lambda r: r.config["workers"])
    judgement = report.judge(records(expected=0.9, ddp=40.0))
    gains = [0.9 * expected_steps(of_four, p) / 40 for p in PERIODS]
    steps = judgement.tables["steps"]
    rows = steps[steps["workers"] == 4]
    assert rows["over_ddp"].dropna().tolist() == pytest.approx(gains)
    assert rows["over_expected"].dropna().tolist() == pytest.approx(3 * [0.9])
