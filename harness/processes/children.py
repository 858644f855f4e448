"""Child processes of this Python, and their output line by line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, TypeVar

from harness.processes.environment import child_variables

SECONDS_TO_END = 5.0
"""Time that a child has to exit before it is killed."""

LAST_LINES = 50
"""Number of lines that are kept of a long-running child's standard error."""

ROOT = Path(__file__).resolve().parent.parent.parent


Job = TypeVar("Job")

MOST_AT_ONCE = 4
"""Default limit of parallel children: each may hold a framework in memory."""


class Children:
    """Child processes of several threads. Any thread can stop all of them.

    Attributes:
        cores: default number of parallel children.
        ended: whether all were stopped.
    """

    cores = min(MOST_AT_ONCE, os.cpu_count() or 1)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[subprocess.Popen[str]] = []
        self.ended = False

    def add(self, child: subprocess.Popen[str]) -> None:
        """Add a started child. Terminate it if the others were stopped before."""
        with self._lock:
            self._running.append(child)
            if self.ended:
                child.terminate()

    def converse(self, module: str, arguments: Sequence[str]) -> Conversation:
        """Start ``python -m MODULE`` as one of these children."""
        return Conversation(module, arguments, self)

    def end(self) -> None:
        """Stop all children, including later ones. Return when they are gone.

        A child that does not exit within ``SECONDS_TO_END`` is killed.
        """
        with self._lock:
            self.ended = True
            for child in self._running:
                child.terminate()
            for child in self._running:
                try:
                    child.wait(SECONDS_TO_END)
                except subprocess.TimeoutExpired:
                    child.kill()


class Conversation:
    """A child process that answers each line with lines of its own.

    It does not get Ctrl-C from the terminal: the process that started it stops it. It
    exits by itself when this process is gone.
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
        """Write a line. If the child is gone, only reading its answer shows that."""
        assert self._child.stdin
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()

    def receive(self) -> str | None:
        """Read a line. Return None if the child exited before the line was complete."""
        assert self._child.stdout
        line = self._child.stdout.readline()
        return line.removesuffix("\n") if line.endswith("\n") else None

    def stop(self) -> None:
        """Stop a child that may still be working."""
        self._child.terminate()
        self.end()

    def end(self) -> str:
        """Wait for a child that needs no more lines; return how it ended.

        The result is its signal or exit status, and its last line of standard error.
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


def run_jobs(
    jobs: Iterable[Job], run: Callable[[Children, Job], None], at_once: int = 2
) -> None:
    """Run so many jobs at a time. After an error or Ctrl-C, stop all of them."""
    children = Children()
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        try:
            waiting = {pool.submit(run, children, job) for job in jobs}
            while waiting:
                # With a timeout: a signal that arrives while this thread falls asleep
                # is only handled when it wakes.
                done, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.end()
            raise


def run_lines(
    module: str,
    arguments: Sequence[str],
    stdin: str,
    on_line: Callable[[str], None],
    children: Children | None = None,
    first: Path | None = None,
) -> tuple[int, str]:
    """Run ``python -m module`` and call ``on_line`` for each line that it prints.

    Return its exit status and the end of its standard error. The child is stopped when
    the caller is interrupted, or with the other ``children``. It exits by itself when
    this process is gone. It searches the folder ``first`` before all others for what it
    imports.
    """
    command, variables = _watched(module, arguments), child_variables()
    if first is not None:
        variables["PYTHONPATH"] = f"{first}{os.pathsep}{variables['PYTHONPATH']}"
    return run_command(command, stdin, on_line, variables, children)


def run_command(
    command: Sequence[str],
    stdin: str,
    on_line: Callable[[str], None],
    variables: Mapping[str, str],
    children: Children | None = None,
) -> tuple[int, str]:
    """Do the same with any command and the given environment variables.

    With ``children``, the child does not get Ctrl-C from the terminal. Otherwise a
    thread whose child is interrupted would start the next before ``children`` stop.
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
            # If a child dies before it reads everything, standard error says why.
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
    """Return the command of a module that exits when this process is gone."""
    watched = ["harness.processes.child", str(os.getpid()), module]
    return [sys.executable, "-m", *watched, *arguments]


def _started(
    command: Sequence[str], variables: Mapping[str, str], own_group: bool = False
) -> subprocess.Popen[str]:
    """Start a process. With ``own_group``, it gets no signals from the terminal."""
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
