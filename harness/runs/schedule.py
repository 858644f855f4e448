"""The order in which threads do the runs.

Each thread does one run at a time. It has at most one worker process, which can do the
runs of only one part. A thread stays with its part as long as the part has runs, since
starting a framework takes longer than many runs.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

from harness.declarations.declare import Run
from harness.runs.parts import Part
from harness.runs.workers import Answer, Crash, Hosts, Lost, Refusal, Worker

__all__ = ["Schedule", "do_all"]

CRASHES = 3
"""Number of consecutive worker crashes after which a part is given up."""

SECONDS_OF_SLEEP = 1.0
"""A signal that arrives just before a sleep is handled at most this much later."""


class Schedule:
    """The runs of several parts, distributed to several threads.

    Args:
        settled: called after each run with its part and the seconds it took. It may add
            waiting runs. No two calls overlap.
    """

    def __init__(
        self, parts: Sequence[Part], settled: Callable[[Part, float | None], None]
    ) -> None:
        self._parts, self._settled = parts, settled
        self._changed = threading.Condition()
        self._stopped = False
        self._last_loss = ""

    def take(self, mine: Part | None) -> tuple[Part, Run] | None:
        """Return the next run, of the part ``mine`` if that has one.

        Wait while no run is available but a run in progress may add some. Return None
        if there will be none.
        """
        with self._changed:
            while not self._stopped:
                part = self._next(mine)
                if part is not None:
                    if mine is not None:
                        mine.threads -= 1
                    part.threads += 1
                    part.running += 1
                    return part, part.waiting.popleft()
                if not any(part.running for part in self._parts):
                    break
                self._changed.wait(SECONDS_OF_SLEEP)
            return None

    def settle(
        self,
        part: Part,
        run: Run,
        worker: Worker,
        answer: Answer | Crash | Refusal | Lost,
    ) -> None:
        """Record the result of a run. If its machine was lost, the run waits again."""
        with self._changed:
            if self._stopped:
                return
            part.running -= 1
            seconds = None
            if isinstance(answer, Lost):
                part.waiting.appendleft(run)
                self._last_loss = answer.reason
            elif isinstance(answer, Refusal):
                part.waiting.appendleft(run)
                part.stop(answer.reason)
            elif isinstance(answer, Crash):
                record = part.take_crash(run, answer, worker)
                seconds = None if record is None else record.duration
                if part.crashes >= CRASHES:
                    text = f"{CRASHES} worker processes in a row ended"
                    part.stop(f"{text}, the last with {answer.reason}")
            else:
                seconds = part.take(run, answer, worker).duration
            self._settled(part, seconds)
            self._changed.notify_all()

    def leave_rest(self) -> None:
        """Give up the waiting runs, because no thread has a machine for them."""
        with self._changed:
            # The end of a stage may request the runs of another.
            while waiting := [part for part in self._parts if part.waiting]:
                for part in waiting:
                    part.stop(self._last_loss)
                    self._settled(part, None)

    def stop(self) -> None:
        """Start and record no more runs. Return when no record is being written."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _next(self, mine: Part | None) -> Part | None:
        """Return the thread's own part, else one without a thread, else the longest."""
        if mine is not None and mine.waiting:
            return mine
        waiting = [part for part in self._parts if part.waiting]
        alone = [part for part in waiting if not part.threads]
        longest = max(waiting, key=lambda part: len(part.waiting), default=None)
        return alone[0] if alone else longest


def do_all(schedule: Schedule, jobs: int, hosts: Hosts) -> None:
    """Do all runs of a schedule, with ``jobs`` parallel worker processes."""
    # Imported here: the environment that draws pages does not have it.
    from joblib import Parallel, delayed

    numbers = itertools.count()
    drive = delayed(_drive)
    threads = [drive(schedule, numbers, hosts) for _ in range(jobs)]
    Parallel(n_jobs=jobs, backend="threading")(threads)
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
            if isinstance(answer, Lost) and worker.introduction is None:
                # No machine is free: the other threads do the runs.
                return
            if isinstance(answer, Crash | Refusal | Lost):
                worker = None
    finally:
        if worker is not None:
            worker.stop()
