"""Run experiments: worker processes do the runs that are missing.

declared runs - settled records -> workers -> outcomes -> lines appended to results/

Workers train. Only this process writes. If either is killed, at most the runs in
progress are lost, and the next start does them. If an experiment tunes a value, its
validation runs are done first, because the other runs depend on their records.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from harness.declarations.declare import Experiment, Run
from harness.declarations.tune import choice_lines, with_choices
from harness.errors import HarnessError
from harness.processes.children import Children
from harness.processes.cluster import Cluster
from harness.records.code import code_digest, commit_of
from harness.records.files import RESULTS, Store, folder, read
from harness.records.record import Code, Record, latest
from harness.runs.progress import Progress
from harness.runs.schedule import Schedule, do_all
from harness.runs.workers import Answer, Failure, Hosts, Worker
from harness.tasks import TIMED
from lockstep import registry
from lockstep.errors import MissingFrameworkError, sentence, unknown_name


@dataclass(frozen=True)
class Request:
    """Which runs to do, and how.

    Attributes:
        backends: backends to run on; by default, all of an experiment that are
            installed.
        device: ``cpu``, or the frameworks' name of another device, such as ``cuda``.
        publish: write into ``results/EXPERIMENT`` instead of ``results/local``.
        root: the folder of results.
        seeds: number of seeds, the first of the scale; None means all.
        jobs: number of parallel worker processes. None means one per core, on this
            machine at most four.
        cluster: address of the Ray cluster to run on; None means this machine.
        command: the arguments of ``harness`` that asked for this.
    """

    scale: str
    backends: Sequence[str] = ()
    device: str = "cpu"
    publish: bool = False
    root: Path = RESULTS
    seeds: int | None = None
    jobs: int | None = 1
    cluster: str | None = None
    command: str = ""


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

    def __str__(self) -> str:
        new = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        text = (
            f"{self.backend}: {self.state}; {new or 'no new runs'}; {self.settled} kept"
        )
        notes = [f"{reason} ({n} x)" for reason, n in self.reasons.items()]
        return "\n  ".join([text, *filter(None, [self.reason]), *notes])


def sweep(experiments: Sequence[Experiment], request: Request) -> list[Report]:
    """Do every run of a scale that has no settled record yet.

    Results do not depend on ``jobs``. Tasks that measure time are run last, by one
    worker at a time.

    Returns:
        One report for each backend of each experiment.

    Raises:
        HarnessError: the request is impossible, or a file cannot be written. Nothing
            was changed.
    """
    with ExitStack() as stack:
        hosts: Hosts = Cluster(request.cluster) if request.cluster else Children()
        jobs = request.jobs or hosts.cores
        shown = stack.enter_context(Progress())
        checkout = commit_of()
        sweeps = [Sweep(e, request, checkout, shown, stack) for e in experiments]
        stack.callback(hosts.end)
        for each in sweeps:
            each.ask()
        timed = [each for each in sweeps if each.experiment.task in TIMED]
        others = [each for each in sweeps if each not in timed]
        if shown.total:
            most = jobs if any(each.waiting for each in others) else 1
            shown.write(f"{shown.total} runs to do; worker processes: {most}")
        numbers = itertools.count()

        def settled(part: Part, recorded: bool) -> None:
            if recorded:
                shown.advance(part.name)
            if part.report.state == "stopped":
                shown.close(part.name)

        for group, most in ((others, jobs), (timed, 1)):
            for _ in ("validation", "report"):
                for each in group:
                    each.ask()
                if parts := [part for each in group for part in each.waiting]:
                    do_all(Schedule(parts, settled), most, hosts, numbers)
            for each in group:
                shown.write(str(each))
    return [report for each in sweeps for report in each.reports.values()]


class Part:
    """The runs of one experiment on one backend.

    Attributes:
        records: all records of the part's file, including new ones.
        waiting: runs that are not started yet.
        running: number of runs in progress.
        threads: number of threads that have a worker for this part.
        crashes: number of workers that crashed since the last answer.
        missing: number of runs that this command will not do.
        validating: whether its runs are those by which values are chosen.
    """

    def __init__(
        self,
        experiment: Experiment,
        report: Report,
        request: Request,
        checkout: tuple[str | None, bool | None],
        stack: ExitStack,
    ) -> None:
        """Open the part's files. They are closed when ``stack`` ends."""
        self.experiment, self.report, self.request = experiment, report, request
        self.backend, self.device = report.backend, request.device
        self.code = Code(*checkout, code_digest(experiment.task, self.backend))
        home = folder(experiment.name, request.publish, request.root)
        self._store = stack.enter_context(Store(home, self.backend))
        self.records = self._store.records
        self.waiting: deque[Run] = deque()
        self.running = self.threads = self.crashes = self.missing = 0
        self.validating = False

    @property
    def name(self) -> str:
        """The name that progress shows."""
        name = f"{self.experiment.name}, {self.backend}"
        return f"{name}, validation" if self.validating else name

    def ask(self, runs: Sequence[Run]) -> None:
        """Add runs to the waiting ones, except those that are settled."""
        settled = {r.key for r in latest(self.records) if r.settled}
        missing = [r for r in runs if (r.id, self.backend, self.device) not in settled]
        self.report.settled += len(runs) - len(missing)
        self.waiting.extend(missing)

    def record(self, run: Run, answer: Answer, worker: Worker) -> Record:
        """Append the record of a run and count it."""
        assert worker.introduction is not None
        record = Record(
            **asdict(run),
            **{name: value for name, value in answer.items() if name != "id"},
            id=run.id,
            scale=self.request.scale,
            command=self.request.command,
            subject=worker.introduction["subject"],
            environment=self._store.environment(worker.introduction["environment"]),
            code=self.code,
            process=worker.number,
            prediction=self.experiment.prediction,
        )
        self._store.append(record)
        self.report.counts[record.status] += 1
        if record.reason:
            self.report.reasons[record.reason] += 1
        return record

    def record_crash(self, run: Run, crash: Failure, worker: Worker) -> Record | None:
        """Record a crash as the error of its run.

        Return None if the worker crashed before it began. The run then waits again.
        """
        if worker.introduction is None:
            self.waiting.appendleft(run)
            return None
        reason = f"the worker process ended ({crash.reason})"
        outcome = {"status": "error", "reason": reason, "series": {}, "summary": {}}
        return self.record(run, {**crash.start, **outcome}, worker)

    def stop(self, reason: str) -> None:
        """Give up the waiting runs and report the reason."""
        self.missing += len(self.waiting)
        self.waiting.clear()
        self.report.state = "stopped"
        self.report.reason = (
            f"{reason.removesuffix('.')}. {self.missing} runs are missing; the same "
            "command goes on where this one stopped."
        )


class Sweep:
    """One experiment of a command.

    Attributes:
        reports: one for each requested backend.
        parts: one for each backend that can be used.
    """

    def __init__(
        self,
        experiment: Experiment,
        request: Request,
        checkout: tuple[str | None, bool | None],
        shown: Progress,
        stack: ExitStack,
    ) -> None:
        self.experiment, self.request, self._shown = experiment, request, shown
        names = request.backends or experiment.backends
        self.reports = {name: Report(name) for name in names}
        self.parts = [
            Part(experiment, report, request, checkout, stack)
            for name, report in self.reports.items()
            if _can_run(experiment, name, bool(request.backends), report)
        ]
        self._validated = self._complete = False

    @property
    def waiting(self) -> list[Part]:
        """The parts that have waiting runs."""
        return [part for part in self.parts if part.waiting]

    def ask(self) -> None:
        """Request the runs that can be done now, unless some are waiting.

        These are at first those of validation, if values must be chosen from them.
        """
        if self.waiting or self._complete:
            return
        self._choose()
        first = next((p for p in self.parts if p.backend == self._first), None)
        if self._lacking and first and not self._validated:
            scale = self.experiment.scale(self.request.scale)
            arms = len(self.experiment.arms(self.request.scale))
            for part in self.parts:
                self._shown.expect(
                    part.name, arms * (self.request.seeds or scale.seeds)
                )
            self._validated = first.validating = True
            first.ask(self.experiment.validation_runs(self.request.scale))
            self._shown.expect(first.name, len(first.waiting))
        if first and first.waiting:
            return
        self._complete = True
        runs = self.experiment.runs(self.request.scale, self.request.seeds)
        for part in self.parts:
            part.validating = False
            if part.report.state == "done":
                part.ask(runs)
            self._shown.expect(part.name, len(part.waiting))
        if self._lacking:
            self._report_lack()

    @property
    def _first(self) -> str:
        """The backend on which values are chosen."""
        return self.experiment.backends[0]

    @property
    def _lacking(self) -> int:
        """Number of arms without a value, if a value is tuned."""
        if self.experiment.tune is None:
            return 0
        arms = self.experiment.arms(self.request.scale)
        return len(arms) - len(self.experiment.choices.get(self.request.scale, ()))

    def _choose(self) -> None:
        """Choose the tuned values from the records of the first backend."""
        sources = [part.records for part in self.parts if part.backend == self._first]
        if not sources:
            name, root = f"{self._first}.jsonl", self.request.root
            places = (True,) if self.request.publish else (False, True)
            homes = [folder(self.experiment.name, p, root) for p in places]
            sources = [read(home / name) for home in homes]
        last = [latest(records) for records in sources]
        self.experiment = with_choices(self.experiment, *last)

    def _report_lack(self) -> None:
        """Report that the runs of arms without a value could not be done."""
        expected = (
            f"all validation runs of [tune] on {self._first}, which choose values"
        )
        arms = len(self.experiment.arms(self.request.scale))
        got = f"{self._lacking} of {arms} arms that lack some"
        remedy = f"run it on {self._first} until none ends with an error"
        text = sentence(self.experiment.name, expected, got, remedy)
        for report in self.reports.values():
            if report.state == "done":
                report.state, report.reason = "stopped", text

    def __str__(self) -> str:
        head = f"{self.experiment.name} ({self.request.scale}): "
        lines = [f"{head}{self.experiment.question}", *map(str, self.reports.values())]
        if self.experiment.choices.get(self.request.scale):
            chosen = choice_lines(self.experiment, self.request.scale)
            lines += ["chosen by validation:", *(f"  {line}" for line in chosen)]
        return "\n".join(lines)


def _can_run(experiment: Experiment, name: str, named: bool, report: Report) -> bool:
    """Whether a backend can be used. Raise if it was named and is not installed."""
    if name not in experiment.backends:
        kind = f"backend of {experiment.name}"
        raise HarnessError(str(unknown_name(kind, name, experiment.backends)))
    if registry.installed(name):
        return True
    try:
        registry.load(name)
    except MissingFrameworkError as error:
        if named:
            raise HarnessError(str(error)) from error
        report.state, report.reason = "skipped", str(error)
    return False
