"""Which thread does which run next.

Threads take runs one at a time. Each has at most one worker process, which can do the
runs of one part and no others. A thread keeps to its part as long as that has runs:
starting a framework takes longer than many a run.
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
"""Workers of a part that may crash one after the other before it is given up."""

SECONDS_OF_SLEEP = 1.0
"""A signal that comes while the main thread falls asleep is seen when it wakes."""


class Schedule:
    """The runs of several parts, taken and settled by several threads.

    Args:
        settled: called after each run with its part and the seconds that it took; new
            runs may wait afterwards. No two calls overlap.
    """

    def __init__(
        self, parts: Sequence[Part], settled: Callable[[Part, float | None], None]
    ) -> None:
        self._parts, self._settled = parts, settled
        self._changed = threading.Condition()
        self._stopped = False
        self._last_loss = ""

    def take(self, mine: Part | None) -> tuple[Part, Run] | None:
        """Return a run to do, of the part ``mine`` if it has one.

        Waits while none is there but those that are being done may lead to some. None
        means that there will be none.
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
        """Record what became of a run that was taken; one that was lost waits again."""
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
        """Give up the runs that wait, for no thread has a machine for them."""
        with self._changed:
            # The end of a stage may ask for the runs of another.
            while waiting := [part for part in self._parts if part.waiting]:
                for part in waiting:
                    part.stop(self._last_loss)
                    self._settled(part, None)

    def stop(self) -> None:
        """Take no more runs and record none; return when no record is being written."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _next(self, mine: Part | None) -> Part | None:
        """Choose the thread's own part, else one without a thread, else the longest."""
        if mine is not None and mine.waiting:
            return mine
        waiting = [part for part in self._parts if part.waiting]
        alone = [part for part in waiting if not part.threads]
        longest = max(waiting, key=lambda part: len(part.waiting), default=None)
        return alone[0] if alone else longest


def do_all(schedule: Schedule, jobs: int, hosts: Hosts) -> None:
    """Do all runs of a schedule, with so many worker processes at once."""
    # The environment that draws pages does without it.
    from joblib import Parallel, delayed

    numbers = itertools.count()
    drive = delayed(_drive)
    threads = [drive(schedule, numbers, hosts) for _ in range(jobs)]
    Parallel(n_jobs=jobs, backend="threading")(threads)
    schedule.leave_rest()


def _drive(schedule: Schedule, numbers: Iterator[int], hosts: Hosts) -> None:
    """Do one run after the other until there is none; change workers as need be."""
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
