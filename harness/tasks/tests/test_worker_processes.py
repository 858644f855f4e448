"""Workers in processes: machines in one computer, a whole run, and the tables."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

from harness.declarations import declare
from harness.processes.children import Children
from harness.runs.worker import Worker, attempt
from harness.tasks.worker_processes import machines, report
from harness.tasks.worker_processes.laboratory import outcome
from harness.tests.makers import made_up
from lockstep.errors import UnsupportedError

RUNS = declare.find("worker_processes").validation_runs("quick")
LOOPBACK = [run for run in RUNS if run.config["link"] == "loopback"]
SLOW = [run for run in RUNS if run.config["link"] == "slow link"]
SECONDS_TO_END = 60.0
"""How long the processes of Ray may take to end on a busy machine."""

NEEDS_FRAMEWORKS = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None
    or importlib.util.find_spec("torch") is None,
    reason="needs Ray and PyTorch",
)


def marked(mark: str) -> list[str]:
    """Return the ids of processes that inherited a mark; none where it is not told."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            inherited = mark.encode() in path.read_bytes()
        except OSError:  # It has ended, or is another user's.
            continue
        found += [path.parent.name] if inherited else []
    return found


def skip_without_machines() -> None:
    try:
        machines.require_machines()
    except UnsupportedError as error:
        pytest.skip(str(error))


@NEEDS_FRAMEWORKS
@pytest.mark.parametrize(
    ("command", "got"),
    [
        (["sh", "-c", "echo no >&2; exit 1"], "got no;"),
        (["no-such-program"], "No such file"),
    ],
)
def test_a_run_without_slow_links_is_skipped_and_no_error(
    command: list[str], got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "isolated", lambda _: command)
    machines.require_machines.cache_clear()
    outcome = attempt(SLOW[0], "pytorch", "cpu")
    assert outcome.status == "skipped"
    assert got in outcome.reason and "as root on Linux" in outcome.reason


SENDER = """
import socket, subprocess, sys, time
from harness.tasks.worker_processes.machines import address, build, on_machine

BYTES = 1_000_000
RECEIVER = f'''
import socket, sys
connection = socket.create_connection((sys.argv[1], 4000), 30)
got = connection.makefile("rb").read({BYTES})
connection.sendall(b".")
'''
build(2, 20.0)
server = socket.create_server((address(0), 4000))
receiver = [sys.executable, "-c", RECEIVER, address(0)]
subprocess.Popen(on_machine(1, receiver))
connection, _ = server.accept()
begin = time.monotonic()
connection.sendall(bytes(BYTES))
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(8e-6 * BYTES / (time.monotonic() - begin))
"""
"""Prints the megabits a second from one machine to another over a slow link."""


def test_a_link_carries_what_it_was_slowed_down_to() -> None:
    skip_without_machines()
    done = subprocess.run(
        machines.isolated([sys.executable, "-c", SENDER]),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.returncode, done.stderr
    # Of a packet of 1514 bytes, 66 are headers; a burst of 32 kB is not slowed down.
    assert 15 < float(done.stdout) < 20


@pytest.mark.slow
@NEEDS_FRAMEWORKS
@pytest.mark.parametrize("method", ["agn", "easgd", "ddp"])
def test_workers_learn_and_leave_no_process(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("MARK_OF_TEST", mark)
    run = next(run for run in LOOPBACK if run.config["method"] == method)
    config = {**run.config, "workers": 2, "hidden": 32, "seconds": 3.0}
    run = dataclasses.replace(run, config={**config, "learning_rate": 0.01})
    worker = Worker(run.task, "pytorch", "cpu", 0, Children())
    answer = worker.do(run)
    how = worker.end()
    assert isinstance(answer, dict) and answer["status"] == "ok", (answer, how)
    # A guess is right once in ten times.
    assert answer["series"]["accuracy"][0] < 0.4 < answer["summary"]["accuracy"]
    assert set(answer["summary"]) == set(report.WORST)
    end = time.monotonic() + SECONDS_TO_END
    while marked(mark) and time.monotonic() < end:
        time.sleep(0.2)
    assert not marked(mark)


def test_an_accuracy_holds_until_the_next_measurement_and_late_ones_do_not_count() -> (
    None
):
    measured = [(0.0, 0.1, True), (1.0, 0.96, True), (5.0, 1.0, True)]
    found = outcome(measured, 4.0, 7.0)
    assert found.summary["mean_accuracy"] == pytest.approx((0.1 + 3 * 0.96) / 4)
    assert found.summary["to_target"] == 1.0
    low = outcome([(0.0, 0.1, True), (1.0, 0.5, False)], 4.0, 7.0)
    assert low.status == "diverged"


def test_the_curve_of_a_run_has_what_was_measured_before() -> None:
    record = made_up(LOOPBACK[0], "pytorch", np.random.default_rng(0))
    series = {"seconds": [0.0, 0.1], "accuracy": [0.2, 0.8]}
    record = dataclasses.replace(record, series=series)
    tables = report.judge([record]).tables
    drawn = tables["curves"].set_index("second")["accuracy"]
    assert drawn.iloc[0] == 0.2 and drawn.iloc[-1] == 0.8
    missed = dataclasses.replace(
        record, summary={**record.summary, "to_target": math.inf}
    )
    assert report.judge([missed]).tables["ends"]["to_target"].tolist() == [math.inf]
