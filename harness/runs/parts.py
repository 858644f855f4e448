"""One experiment's runs on one backend: which are missing, and how to record them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from harness.declarations.declare import Experiment, Run
from harness.records.code import code_digest
from harness.records.record import Code, Record, latest
from harness.records.store import Store
from harness.runs.workers import Answer, Crash, Worker

__all__ = ["Origin", "Part", "Report"]


@dataclass(frozen=True)
class Origin:
    """Where the records of a command come from.

    Attributes:
        scale: ``quick``, ``std`` or ``full``.
        command: the arguments of ``harness``.
        checkout: the commit, and whether code differs from it.
    """

    scale: str
    command: str
    checkout: tuple[str | None, bool | None]


@dataclass
class Report:
    """The result of a sweep on one backend.

    Attributes:
        state: ``skipped`` before any work, ``stopped`` before the end, or ``done``.
        reason: one sentence, empty when done.
        settled: number of runs that were finished before.
        counts: new records by status.
        reasons: number of runs for each reason in their records.
    """

    backend: str
    state: Literal["done", "stopped", "skipped"] = "done"
    reason: str = ""
    settled: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        """Whether runs are missing or ended with an error."""
        return self.state == "stopped" or self.counts["error"] > 0

    def stop(self, reason: str) -> None:
        """Record why runs are missing."""
        self.state, self.reason = "stopped", reason

    def __str__(self) -> str:
        new = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        text = (
            f"{self.backend}: {self.state}; {new or 'no new runs'}; {self.settled} kept"
        )
        notes = [f"{reason} ({n} x)" for reason, n in self.reasons.items()]
        return "\n  ".join([text, *filter(None, [self.reason]), *notes])


class Part:
    """The runs of one experiment on one backend.

    Attributes:
        waiting: runs that are not started yet.
        running: number of runs in progress.
        threads: number of threads that have a worker for this part.
        crashes: number of workers that crashed since the last answer.
        missing: number of runs that this command will not do.
        records: all records of the part's file, including new ones.
    """

    def __init__(
        self,
        experiment: Experiment,
        report: Report,
        device: str,
        home: Path,
        origin: Origin,
        stack: ExitStack,
    ) -> None:
        """Open the part's files. They are closed when ``stack`` ends."""
        self.experiment, self.report, self.device = experiment, report, device
        self.backend = report.backend
        self.name = f"{experiment.name}, {self.backend}"
        self.origin = origin
        digest = code_digest(experiment.task, self.backend)
        self.code = Code(*origin.checkout, digest)
        self.store = stack.enter_context(Store(home, self.backend))
        self.waiting: deque[Run] = deque()
        self.running = self.threads = self.crashes = self.missing = 0

    @property
    def records(self) -> list[Record]:
        """All records of the part's file, including new ones."""
        return self.store.records

    @property
    def idle(self) -> bool:
        """Whether no run waits and no run is in progress."""
        return not self.waiting and not self.running

    def ask(self, runs: Sequence[Run]) -> None:
        """Add runs to the waiting ones, except those that are settled."""
        settled = {r.key for r in latest(self.records) if r.settled}
        missing = [r for r in runs if (r.id, self.backend, self.device) not in settled]
        self.report.settled += len(runs) - len(missing)
        self.waiting.extend(missing)

    def take(self, run: Run, answer: Answer, worker: Worker) -> Record:
        """Record the answer of a run."""
        self.crashes = 0
        return self._append(run, answer, worker)

    def take_crash(self, run: Run, crash: Crash, worker: Worker) -> Record | None:
        """Record a crash as the error of its run.

        Return None if the worker crashed before it began. The run then waits again.
        """
        self.crashes += 1
        if worker.introduction is None:
            self.waiting.appendleft(run)
            return None
        reason = f"the worker process ended ({crash.reason})"
        outcome = {"status": "error", "reason": reason, "series": {}, "summary": {}}
        return self._append(run, {**crash.start, **outcome}, worker)

    def stop(self, reason: str) -> None:
        """Give up the waiting runs and report the reason."""
        self.missing += len(self.waiting)
        left = f"{self.missing} runs are missing"
        again = "the same command goes on where this one stopped"
        self.report.stop(f"{reason.removesuffix('.')}. {left}; {again}.")
        self.waiting.clear()

    def _append(self, run: Run, answer: Answer, worker: Worker) -> Record:
        """Append the record of a run and count it."""
        assert worker.introduction is not None
        record = Record(
            **asdict(run),
            **{name: value for name, value in answer.items() if name != "id"},
            scale=self.origin.scale,
            command=self.origin.command,
            id=run.id,
            subject=worker.introduction["subject"],
            environment=self.store.environment(worker.introduction["environment"]),
            code=self.code,
            process=worker.number,
            prediction=self.experiment.prediction,
        )
        self.store.append(record)
        self.report.counts[record.status] += 1
        if record.reason:
            self.report.reasons[record.reason] += 1
        return record
