"""The order in which threads do the runs.

Each thread does one run at a time. It has at most one worker process, which can do the
runs of only one part: an experiment on a backend. A thread stays with its part as long
as the part has runs, since starting a framework takes longer than many runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from harness.declarations.declare import Run
from harness.runs.workers import Answer, Failure, Hosts, Worker

if TYPE_CHECKING:
    from harness.runs.run import Part

CRASHES = 3
"""Number of consecutive worker crashes after which a part is given up."""


class Schedule:
    """The waiting runs of several parts, distributed to several threads.

    Args:
        settled: called after each run with its part and whether it was recorded. No two
            calls overlap.
    """

    def __init__(
        self, parts: Sequence[Part], settled: Callable[[Part, bool], None]
    ) -> None:
        self._parts, self._settled = parts, settled
        self._changed = threading.Condition()
        self._stopped = False
        self._last_loss = ""

    def take(self, mine: Part | None) -> tuple[Part, Run] | None:
        """Return the next run, of the part ``mine`` if that has one.

        Wait while there is none but a run in progress may come back. Return None if
        there will be none.
        """
        with self._changed:
            while not self._stopped:
                if part := self._next(mine):
                    if mine is not None:
                        mine.threads -= 1
                    part.threads += 1
                    part.running += 1
                    return part, part.waiting.popleft()
                if not any(part.running for part in self._parts):
                    break
                self._changed.wait()
            return None

    def _next(self, mine: Part | None) -> Part | None:
        """Return the thread's own part, else one without a thread, else the longest."""
        if mine is not None and mine.waiting:
            return mine
        waiting = [part for part in self._parts if part.waiting]
        alone = [part for part in waiting if not part.threads]
        longest = max(waiting, key=lambda part: len(part.waiting), default=None)
        return alone[0] if alone else longest

    def settle(
        self, part: Part, run: Run, worker: Worker, answer: Answer | Failure
    ) -> None:
        """Record the result of a run. If its machine was lost, the run waits again."""
        with self._changed:
            if self._stopped:
                return
            part.running -= 1
            record = None
            if not isinstance(answer, Failure):
                part.crashes = 0
                record = part.record(run, answer, worker)
            elif answer.kind == "crashed":
                part.crashes += 1
                record = part.record_crash(run, answer, worker)
                if part.crashes >= CRASHES:
                    text = f"{CRASHES} worker processes in a row ended"
                    part.stop(f"{text}, the last with {answer.reason}")
            else:
                part.waiting.appendleft(run)
                self._last_loss = answer.reason
                if answer.kind == "refused":
                    part.stop(answer.reason)
            self._settled(part, record is not None)
            self._changed.notify_all()

    def leave_rest(self) -> None:
        """Give up the waiting runs, because no thread has a machine for them."""
        for part in self._parts:
            if part.waiting:
                part.stop(self._last_loss)
                self._settled(part, False)

    def stop(self) -> None:
        """Start and record no more runs. Return when no record is being written."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def do_all(schedule: Schedule, jobs: int, hosts: Hosts, numbers: Iterator[int]) -> None:
    """Do all runs of a schedule, with ``jobs`` parallel worker processes.

    ``numbers`` are those of the next processes. If this is interrupted, or a record
    cannot be written, all workers are stopped.
    """
    with ThreadPoolExecutor(jobs) as pool:
        try:
            drives = [
                pool.submit(_drive, schedule, numbers, hosts) for _ in range(jobs)
            ]
            for drive in as_completed(drives):
                drive.result()
        except BaseException:
            schedule.stop()
            hosts.end()
            raise
    schedule.leave_rest()


def _drive(schedule: Schedule, numbers: Iterator[int], hosts: Hosts) -> None:
    """Do runs until there are none. Start another worker when the part changes."""
    mine, worker = None, None
    try:
        while taken := schedule.take(mine):
            part, run = taken
            if part is not mine or worker is None:
                if worker is not None:
                    worker.stop()
                mine = part
                subject = (part.experiment.task, part.backend, part.device)
                worker = Worker(*subject, next(numbers), hosts)
            answer = worker.do(run)
            schedule.settle(part, run, worker, answer)
            if isinstance(answer, Failure):
                if answer.kind == "lost" and worker.introduction is None:
                    return  # No machine is free: the other threads do the runs.
                worker = None
    finally:
        if worker is not None:
            worker.stop()
