"""Child processes of this Python, and their output line by line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from harness.processes.environment import child_variables

__all__ = ["ROOT", "Children", "Conversation", "run_command", "run_lines"]

SECONDS_TO_END = 5.0
"""How long a child that is to end may take."""

LAST_LINES = 50
"""What is kept of the standard error of a child that may live long."""

ROOT = Path(__file__).resolve().parent.parent.parent


MOST_AT_ONCE = 4
"""Children at once that nobody asked for: each may hold a framework in memory."""


class Children:
    """Child processes of several threads, which one of them can end together.

    Attributes:
        cores: how many to have at once if nobody says so.
    """

    cores = min(MOST_AT_ONCE, os.cpu_count() or 1)

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

    def converse(self, module: str, arguments: Sequence[str]) -> Conversation:
        """Start ``python -m MODULE`` as one of them."""
        return Conversation(module, arguments, self)

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


class Conversation:
    """A child process that answers each line it is sent with lines of its own.

    It gets no Ctrl-C of the terminal: who started it ends it. It ends by itself when
    this process is gone.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], children: Children
    ) -> None:
        command = _watched(module, arguments)
        self._child = _started(command, child_variables(), own_group=True)
        children.add(self._child)
        self._errors: deque[str] = deque(maxlen=LAST_LINES)
        streams = self._child.stderr, self._errors.extend
        self._reading = threading.Thread(target=_drain, args=streams, daemon=True)
        self._reading.start()

    def send(self, line: str) -> None:
        """Write a line; a child that is gone is seen when its answer is read."""
        assert self._child.stdin
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()

    def receive(self) -> str | None:
        """Read a line; None if the child ended, in the middle of it or before."""
        assert self._child.stdout
        line = self._child.stdout.readline()
        return line.removesuffix("\n") if line.endswith("\n") else None

    def stop(self) -> None:
        """End a child that may still be at work."""
        self._child.terminate()
        self.end()

    def end(self) -> str:
        """Wait for the end of a child that was sent everything; return how it ended.

        That is its signal or exit status, and the last line of its standard error.
        """
        assert self._child.stdin and self._child.stdout
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        status = self._child.wait()
        self._reading.join(SECONDS_TO_END)
        self._child.stdout.close()
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        lines = [line.strip() for line in self._errors if line.strip()]
        return ", ".join([ended, *lines[-1:]])


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
    command = _watched(module, arguments)
    return run_command(command, stdin, on_line, child_variables(), children)


def run_command(
    command: Sequence[str],
    stdin: str,
    on_line: Callable[[str], None],
    variables: Mapping[str, str],
    children: Children | None = None,
) -> tuple[int, str]:
    """Do the same with any command and the environment variables it is to have.

    One of several ``children`` gets no Ctrl-C of the terminal: a thread that lost its
    child to one would start the next before ``children`` are ended.
    """
    errors: list[str] = []
    with _started(command, variables, own_group=children is not None) as child:
        assert child.stdin and child.stdout and child.stderr
        if children is not None:
            children.add(child)
        streams = child.stderr, errors.extend
        reading = threading.Thread(target=_drain, args=streams)
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


def _watched(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command of a module that ends when this process is gone."""
    watched = ["harness.processes.child", str(os.getpid()), module]
    return [sys.executable, "-m", *watched, *arguments]


def _started(
    command: Sequence[str], variables: Mapping[str, str], own_group: bool = False
) -> subprocess.Popen[str]:
    """Start a process; in a group of its own, the terminal's signals miss it."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=variables,
        process_group=0 if own_group and os.name == "posix" else None,
    )


def _drain(stream: IO[str], keep: Callable[[IO[str]], None]) -> None:
    """Read a stream to its end, so that the child never waits for a full pipe."""
    with stream:
        keep(stream)
