"""Child processes, which answer lines with lines, and a pool of threads for them."""

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
from typing import TYPE_CHECKING, TypeVar

from harness.processes.environment import child_variables

if TYPE_CHECKING:
    from harness.processes.cluster import Cluster

ROOT = Path(__file__).resolve().parent.parent.parent

Job = TypeVar("Job")

MOST_AT_ONCE = 4
"""Default limit of parallel children: each may hold a framework in memory."""

SECONDS_TO_END = 5.0
"""Time that a child has to exit before it is killed."""

LAST_LINES = 50
"""Number of lines that are kept of a child's standard error."""


class Child:
    """A process that reads lines and prints lines.

    It does not get Ctrl-C from the terminal: the process that started it stops it.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            cwd=ROOT,
            env=variables,
            process_group=0 if os.name == "posix" else None,
        )
        # Its errors are read all the time: a full pipe would stop the child.
        self._errors: deque[str] = deque(maxlen=LAST_LINES)
        self._reading = threading.Thread(target=self._read_errors, daemon=True)
        self._reading.start()

    def _read_errors(self) -> None:
        assert self.process.stderr
        with self.process.stderr as lines:
            self._errors.extend(lines)

    def send(self, line: str) -> None:
        """Write a line. If the child is gone, only reading its answer shows that."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()

    def receive(self) -> str | None:
        """Read a line. Return None if the child exited before the line was complete."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        return line.removesuffix("\n") if line.endswith("\n") else None

    def close(self) -> None:
        """Tell the child that it gets no more lines."""
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> str:
        """Wait for a child that needs no more lines; return how it ended.

        The result is its signal or exit status, and its last line of standard error.
        """
        assert self.process.stdout
        self.close()
        status = self.process.wait()
        self._reading.join(SECONDS_TO_END)
        self.process.stdout.close()
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        lines = [line.strip() for line in self._errors if line.strip()]
        return ", ".join([ended, *lines[-1:]])

    def exchange(self, text: str, on_line: Callable[[str], None]) -> tuple[int, str]:
        """Write all lines of a text, and call ``on_line`` for each line of the child.

        Return its exit status and the end of its standard error. It is stopped if this
        process is interrupted.
        """
        try:
            for line in text.splitlines():
                self.send(line)
            self.close()
            while (answer := self.receive()) is not None:
                on_line(answer)
        except BaseException:
            self.stop()
            raise
        self.end()
        return self.process.returncode, "".join(self._errors)

    def stop(self) -> None:
        """Stop a child that may still be working; kill it if it does not exit soon."""
        self.process.terminate()
        try:
            self.process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.end()


class Children:
    """Child processes of several threads. Any thread can stop all of them.

    Attributes:
        cores: default number of parallel children.
        ended: whether all were stopped.
    """

    cores = min(MOST_AT_ONCE, os.cpu_count() or 1)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self.ended = False

    def start(
        self, module: str, arguments: Sequence[str], first: Path | None = None
    ) -> Child:
        """Start ``python -m MODULE``, which exits by itself when this process is gone.

        It searches the folder ``first`` before all others for what it imports.
        """
        variables = child_variables()
        if first is not None:
            variables["PYTHONPATH"] = f"{first}{os.pathsep}{variables['PYTHONPATH']}"
        child = Child(watched(module, arguments), variables)
        with self._lock:
            self._processes.append(child.process)
            if self.ended:
                child.process.terminate()
        return child

    def end(self) -> None:
        """Stop all children, including later ones. Return when they are gone.

        A child that does not exit within ``SECONDS_TO_END`` is killed.
        """
        with self._lock:
            self.ended = True
            for process in self._processes:
                process.terminate()
            for process in self._processes:
                try:
                    process.wait(SECONDS_TO_END)
                except subprocess.TimeoutExpired:
                    process.kill()


def watched(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command of a module that exits when this process is gone."""
    parent = str(os.getpid())
    return [
        *(sys.executable, "-m", "harness.processes.child", parent, module),
        *arguments,
    ]


def run_jobs(
    children: Children | Cluster,
    jobs: Iterable[Job],
    run: Callable[[Job], None],
    at_once: int = 2,
) -> None:
    """Run so many jobs at a time, each of which starts some of ``children``.

    After an error or Ctrl-C, all children are stopped.
    """
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        try:
            waiting = {pool.submit(run, job) for job in jobs}
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
