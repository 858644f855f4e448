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
from pathlib import Path

import pytest

from harness import cli
from harness.environment import child_variables


@pytest.mark.parametrize("ended", [KeyboardInterrupt(), SystemExit(130)])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("parity", "harness: interrupted.\n"),
        ("bench", "harness: interrupted.\n"),
        (
            "run",
            "harness: interrupted; what is done is kept, and the same command goes "
            "on.\n",
        ),
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

DECLARED = """
question = "Who is left?"
title = "Long"
task = "multitask_digits"
backends = ["pytorch"]
[fixed]
batch = 2
hidden = 2
checkpoints = 2
absence = [1]
presence = 0.5
wrapper = "default"
[vary]
optimizer = [{ name = "GradientDescent", learning_rate = 0.1 }]
"""

# Runs that take minutes: only after one would a worker notice that nobody reads what it
# writes.
SCALES = "".join(
    f'[scale.{name}]\nseeds = 2\nsteps = 1000000\nbecause = "long"\n'
    for name in ("quick", "std", "full")
)

PARENT = """
import sys
from pathlib import Path
from harness import cli, declare, run
folder = Path(sys.argv[1])
declare.find = lambda name: declare.read(folder / "long.toml")
sweep = run.sweep
run.sweep = lambda *arguments, **named: sweep(*arguments, **named, root=folder)
sys.argv = ["harness", "run", "long"]
cli.main()
"""


def test_no_worker_is_left_by_a_signal_to_the_parent_alone(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system has no /proc to see processes in")
    for number, status in ((signal.SIGTERM, 130), (signal.SIGINT, 130), (9, -9)):
        with subtests.test(signal=int(number)):
            folder = tmp_path / str(int(number))
            folder.mkdir()
            (folder / "long.toml").write_text(DECLARED + SCALES, "utf-8")
            ended, errors = interrupted(folder, int(number))
            assert ended == status
            assert number == 9 or errors.endswith("the same command goes on.\n")


def interrupted(folder: Path, number: int) -> tuple[int, str]:
    """Start a sweep in a session of its own, send its parent a signal, wait for both.

    Returns the parent's status and its standard error.
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder)],
        env=child_variables(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    workers: list[int] = []
    # Written when the worker has introduced itself, just before its first run.
    known = folder / "local" / "long" / "pytorch.environments.jsonl"
    try:
        wait_until(
            lambda: (
                parent.poll() is not None
                or (known.exists() and known.stat().st_size > 0)
            )
        )
        assert parent.poll() is None, "the parent ended by itself"
        workers = children_of(parent.pid)
        assert workers
        parent.send_signal(number)
        _, errors = parent.communicate(timeout=120)
        wait_until(lambda: not any(map(lives, workers)))
    finally:
        # Nothing is left behind by a test that fails either.
        for pid in (parent.pid, *workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.wait()
    return parent.returncode, errors


def children_of(parent: int) -> list[int]:
    """Return the processes whose parent this one is."""
    return [pid for pid, fields in processes() if int(fields[1]) == parent]


def lives(wanted: int) -> bool:
    """Whether a process runs; one that ended and was not asked for does not."""
    return any(pid == wanted and fields[0] != "Z" for pid, fields in processes())


def processes() -> list[tuple[int, list[str]]]:
    """Return each process with its state, its parent and so on."""
    listed = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("utf-8").rpartition(") ")[2].split()
        except OSError:
            continue
        listed.append((int(path.parent.name), fields))
    return listed


def wait_until(claim: Callable[[], bool], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
