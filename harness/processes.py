"""Child processes of this Python, and their output line by line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from harness.environment import child_variables

__all__ = ["ROOT", "Children", "run_command", "run_lines"]

SECONDS_TO_END = 5.0
"""How long a child that is to end may take."""

ROOT = Path(__file__).resolve().parent.parent


class Children:
    """Child processes of several threads, which one of them can end together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[str]] = []
        self._ended = False

    def add(self, child: subprocess.Popen[str]) -> None:
        """Take a child that was started; end it if the others were ended before."""
        with self._lock:
            self._running.append(child)
            if self._ended:
                child.terminate()

    def end(self) -> None:
        """End all of them, and those that are yet to come; return when they are gone.

        One that does not end in some seconds is killed.
        """
        with self._lock:
            self._ended = True
            for child in self._running:
                child.terminate()
            for child in self._running:
                try:
                    child.wait(SECONDS_TO_END)
                except subprocess.TimeoutExpired:
                    child.kill()


def run_lines(
    module: str,
    arguments: Sequence[str],
    stdin: str,
    on_line: Callable[[str], None],
    children: Children | None = None,
) -> tuple[int, str]:
    """Run ``python -m module``, call ``on_line`` for each line that it prints.

    Returns its exit status and the end of what it wrote to standard error. The child is
    ended when the caller is interrupted, or with the other ``children``, and ends by
    itself when this process is gone.
    """
    watched = ["harness.child", str(os.getpid()), module]
    command = [sys.executable, "-m", *watched, *arguments]
    return run_command(command, stdin, on_line, child_variables(), children)


def run_command(
    command: Sequence[str],
    stdin: str,
    on_line: Callable[[str], None],
    variables: Mapping[str, str],
    children: Children | None = None,
) -> tuple[int, str]:
    """Do the same with any command and the environment variables it is to have."""
    errors: list[str] = []
    with _started(command, variables) as child:
        assert child.stdin and child.stdout and child.stderr
        if children is not None:
            children.add(child)
        reading = threading.Thread(target=_drain, args=(child.stderr, errors))
        reading.start()
        try:
            # A child that died before it read everything says why on standard error.
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(stdin)
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            for line in child.stdout:
                on_line(line)
        except BaseException:
            child.terminate()
            raise
        finally:
            status = child.wait()
            reading.join()
    return status, "".join(errors)[-2000:]


def _started(
    command: Sequence[str], variables: Mapping[str, str]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=variables,
    )


def _drain(stream: IO[str], lines: list[str]) -> None:
    """Read a stream to its end, so that the child never waits for a full pipe."""
    lines.extend(stream)
