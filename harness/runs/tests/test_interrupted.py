"""What the command line says after Ctrl-C, and that no worker outlives it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from harness.commands import cli
from harness.processes.environment import child_variables
from harness.runs.tests.processes import children_of, lives
from harness.tests.declared import declared

KEPT = "harness: interrupted; what is done is kept, and the same command goes on.\n"


@pytest.mark.parametrize("ended", [KeyboardInterrupt(), SystemExit(130)])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("parity", "harness: interrupted.\n"),
        ("bench", KEPT),
        ("run", KEPT),
    ],
)
def test_one_line_says_that_and_whether_the_work_is_kept(
    ended: BaseException,
    command: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted() -> None:
        raise ended

    monkeypatch.setattr(cli, "app", interrupted)
    monkeypatch.setattr(sys, "argv", ["harness", command])
    with pytest.raises(SystemExit) as error:
        cli.main()
    assert error.value.code == 130
    assert capsys.readouterr().err == words


# -- workers ---------------------------------------------------------------------------

PARENT = """
import signal, sys
# What runs these tests in the background of a shell may have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from functools import partial
from pathlib import Path
from harness.commands import cli
from harness.declarations import declare
from harness.runs import run, worker
folder = Path(sys.argv[1])
declare.find = lambda name: declare.read(folder / "tiny.toml")
run.Request = partial(run.Request, root=folder)
do = worker.Worker.do
def print_and_do(worker, run):
    print("a worker begins", flush=True)
    return do(worker, run)
worker.Worker.do = print_and_do
sys.argv = ["harness", "run", "tiny", "--jobs", sys.argv[2]]
cli.main()
"""


# A terminal sends Ctrl-C to the whole group of the parent, others to it alone.
SIGNALS = [
    pytest.param(signal.SIGINT, os.killpg, 130, 1, marks=pytest.mark.soak),
    (signal.SIGINT, os.killpg, 130, 2),
    pytest.param(signal.SIGTERM, os.kill, 130, 2, marks=pytest.mark.soak),
    (signal.SIGKILL, os.kill, -9, 2),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("number", "send", "status", "jobs"),
    SIGNALS,
    ids=["interrupted alone", "interrupted", "terminated", "killed"],
)
def test_no_worker_is_left_by_a_signal(
    tmp_path: Path,
    number: int,
    send: Callable[[int, int], None],
    status: int,
    jobs: int,
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system has no /proc to see processes in")
    # Runs that take minutes: only after one would a worker notice that nobody reads
    # what it writes.
    declared(tmp_path, seeds=2, steps=1_000_000)
    ended, errors = interrupted(tmp_path, number, send, jobs)
    assert ended == status
    goes_on = "the same command goes on.\n"
    assert number == signal.SIGKILL or errors.endswith(goes_on)
    # What was interrupted is no crash of its run.
    assert not list(tmp_path.rglob("pytorch.jsonl")) or number == signal.SIGKILL


def interrupted(
    folder: Path, number: int, send: Callable[[int, int], None], jobs: int
) -> tuple[int, str]:
    """Start a sweep in a session of its own, send it a signal, wait for its end.

    Returns the parent's status and its standard error.
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder), str(jobs)],
        env=child_variables(),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    workers: list[int] = []
    try:
        assert parent.stdout
        begun = filter(lambda line: line == "a worker begins\n", parent.stdout)
        assert len(list(islice(begun, jobs))) == jobs, "the parent ended by itself"
        workers = children_of(parent.pid)
        assert len(workers) == jobs
        send(parent.pid, number)
        _, errors = parent.communicate(timeout=120)
        wait_until(lambda: not any(map(lives, workers)))
    finally:
        # Nothing is left behind by a test that fails either.
        for pid in (parent.pid, *workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.wait()
    return parent.returncode, errors


def wait_until(claim: Callable[[], bool], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
