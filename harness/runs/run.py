"""Run experiments: worker processes do the runs that are missing.

declared runs - settled records -> workers -> outcomes -> lines appended to results/

An experiment on one backend is a *part*, which has one file of records. Several threads
do the runs of the parts, each thread with a worker process of its own. If an experiment
tunes a value, its validation runs are done first, because the value depends on their
records. Tasks that measure time come last, one process at a time.

Workers train. Only this process writes. If either is killed, at most the runs in
progress are lost, and the next start does them.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.declarations.declare import Experiment, Run
from harness.declarations.tune import FIRST_SEED, choice_lines, with_choices
from harness.errors import HarnessError
from harness.processes.children import Children, run_jobs
from harness.processes.cluster import Cluster, NodeLostError
from harness.progress import Progress
from harness.records.code import code_digest, commit_of
from harness.records.files import RESULTS, Store, folder, read
from harness.records.record import Code, Record, latest
from harness.runs.worker import Worker, WorkerEndedError
from harness.tasks import TIMED
from lockstep import registry
from lockstep.errors import sentence, unknown_name

CRASHES = 3
"""Number of consecutive worker crashes after which a part is given up."""


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


def sweep(experiments: Sequence[Experiment], request: Request) -> list[Part]:
    """Do every run of a scale that has no settled record yet.

    Results do not depend on ``jobs``.

    Returns:
        One part for each usable backend of each experiment.

    Raises:
        HarnessError: the request is impossible, or a file cannot be written. Nothing
            was changed.
    """
    with ExitStack() as stack:
        hosts = Cluster(request.cluster) if request.cluster else Children()
        stack.callback(hosts.end)
        jobs = request.jobs or hosts.cores
        shown = stack.enter_context(Progress("runs"))
        commit = commit_of()
        sweeps = [Sweep(e, request, commit, shown, stack) for e in experiments]
        for each in sweeps:
            each.ask_first()
        if shown.total:
            shown.write(f"{shown.total} runs to do; at most {jobs} worker processes")
        numbers = itertools.count()
        for timed, at_once in ((False, jobs), (True, 1)):
            group = [s for s in sweeps if (s.experiment.task in TIMED) == timed]
            parts = [part for each in group for part in each.parts]
            do_runs(parts, at_once, hosts, numbers)
            for each in group:
                each.ask_rest()
            do_runs(parts, at_once, hosts, numbers)
            for each in group:
                shown.write(str(each))
    return [part for each in sweeps for part in each.parts]


# -- which runs ------------------------------------------------------------------------


class Sweep:
    """One experiment of a command.

    Attributes:
        parts: one for each backend that can be used.
        skipped: why others cannot, a sentence each.
        first: the part on which values are chosen, if it is one of them.
        later: number of runs that wait until values are chosen, as far as is known.
    """

    def __init__(
        self,
        experiment: Experiment,
        request: Request,
        commit: tuple[str | None, bool | None],
        shown: Progress,
        stack: ExitStack,
    ) -> None:
        """Open the files of all parts. They are closed when ``stack`` ends.

        A backend that is not installed is skipped unless the request names it.
        """
        self.experiment, self.request, self.shown = experiment, request, shown
        self.parts: list[Part] = []
        self.skipped: list[str] = []
        self.later = 0
        home = folder(experiment.name, request.publish, request.root)
        for name in dict.fromkeys(request.backends or experiment.backends):
            if name not in experiment.backends:
                kind = f"backend of {experiment.name}"
                raise HarnessError(str(unknown_name(kind, name, experiment.backends)))
            if not registry.installed(name):
                missing = registry.missing_framework(name)
                if request.backends:
                    raise missing
                self.skipped.append(f"{name}: skipped; {missing}")
                continue
            code = Code(*commit, code_digest(experiment.task, name))
            store = stack.enter_context(Store(home, name))
            self.parts.append(Part(experiment, name, request, code, store, shown))
        on_first = (p for p in self.parts if p.backend == experiment.backends[0])
        self.first = next(on_first, None)

    def ask_first(self) -> None:
        """Let the first part wait for the runs from which values are chosen.

        If no value is to be chosen, all parts wait for the other runs at once.
        """
        self._choose()
        if not (self.first and self._lacking):
            self._ask_for_report()
            return
        scale = self.request.scale
        self.first.ask(self.experiment.validation_runs(scale))
        seeds = self.request.seeds or self.experiment.scale(scale).seeds
        self.later = seeds * len(self.experiment.arms(scale)) * len(self.parts)
        self.shown.expect(self.later)

    def ask_rest(self) -> None:
        """Let all parts wait for the runs that need the chosen values."""
        if self.later:
            self.shown.expect(-self.later)
            self._choose()
            self._ask_for_report()

    def _ask_for_report(self) -> None:
        """Let the parts wait for the runs of the report."""
        runs = self.experiment.runs(self.request.scale, self.request.seeds)
        for part in self.parts:
            if not part.stopped:
                part.ask(runs)
        if lacking := self._lacking:
            first = self.experiment.backends[0]
            expected = f"all validation runs of [tune] on {first}, which choose values"
            arms = len(self.experiment.arms(self.request.scale))
            got = f"{lacking} of {arms} arms that lack some"
            remedy = f"run it on {first} until none ends with an error"
            text = sentence(self.experiment.name, expected, got, remedy)
            for part in self.parts:
                part.stopped = part.stopped or text

    @property
    def _lacking(self) -> int:
        """Number of arms without a value, if a value is tuned."""
        if self.experiment.tune is None:
            return 0
        arms = self.experiment.arms(self.request.scale)
        return len(arms) - len(self.experiment.choices.get(self.request.scale, ()))

    def _choose(self) -> None:
        """Choose the tuned values from the records of the first backend."""
        if self.first:
            sources = [self.first.store.records]
        else:
            name, root = self.experiment.name, self.request.root
            places = (True,) if self.request.publish else (False, True)
            file = f"{self.experiment.backends[0]}.jsonl"
            sources = [read(folder(name, place, root) / file) for place in places]
        last = [latest(records) for records in sources]
        self.experiment = with_choices(self.experiment, *last)

    def __str__(self) -> str:
        head = f"{self.experiment.name} ({self.request.scale}): "
        lines = [
            f"{head}{self.experiment.question}",
            *map(str, self.parts),
            *self.skipped,
        ]
        if self.experiment.choices.get(self.request.scale):
            chosen = choice_lines(self.experiment, self.request.scale)
            lines += ["chosen by validation:", *(f"  {line}" for line in chosen)]
        return "\n".join(lines)


# -- doing them ------------------------------------------------------------------------


@dataclass
class Part:
    """The runs of one experiment on one backend. Several threads may use it.

    Attributes:
        store: its records, including new ones.
        waiting: runs that are not started yet.
        settled: number of runs that were finished before.
        counts: new records by status.
        reasons: number of runs for each reason in their records.
        crashes: number of worker processes in a row that ended.
        missing: number of runs that were given up.
        stopped: why, as one sentence.
    """

    experiment: Experiment
    backend: str
    request: Request
    code: Code
    store: Store
    shown: Progress
    waiting: deque[Run] = field(default_factory=deque)
    settled: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    crashes: int = 0
    missing: int = 0
    stopped: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def failed(self) -> bool:
        """Whether runs are missing or ended with an error."""
        return bool(self.stopped) or self.counts["error"] > 0

    def __str__(self) -> str:
        state = "stopped" if self.stopped else "done"
        new = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        text = f"{self.backend}: {state}; {new or 'no new runs'}; {self.settled} kept"
        notes = [f"{reason} ({n} x)" for reason, n in self.reasons.items()]
        return "\n  ".join([text, *filter(None, [self.stopped]), *notes])

    def ask(self, runs: Sequence[Run]) -> None:
        """Add runs to the waiting ones, except those that are settled."""
        device = self.request.device
        settled = {
            record.key for record in latest(self.store.records) if record.settled
        }
        missing = [r for r in runs if (r.id, self.backend, device) not in settled]
        self.settled += len(runs) - len(missing)
        self.waiting.extend(missing)
        self.shown.expect(len(missing))

    def take(self) -> Run | None:
        """Return the next run, or None if none is waiting."""
        with self.lock:
            return self.waiting.popleft() if self.waiting else None

    def put_back(self, run: Run) -> None:
        """Let a run wait again that was taken and not done."""
        with self.lock:
            self.waiting.appendleft(run)

    def record(self, run: Run, answer: dict[str, Any], worker: Worker) -> None:
        """Append the record of a run and count it."""
        with self.lock:
            record = Record(
                **asdict(run),
                **answer,
                id=run.id,
                scale=self.request.scale,
                command=self.request.command,
                subject=worker.subject,
                environment=self.store.environment(worker.environment),
                code=self.code,
                process=worker.number,
                prediction=self.experiment.prediction,
            )
            self.store.append(record)
            self.counts[record.status] += 1
            if record.reason:
                self.reasons[record.reason] += 1
            kind = ", validation" if run.seed >= FIRST_SEED else ""
            self.shown.advance(f"{self.experiment.name}, {self.backend}{kind}")

    def count_crash(self, reason: str) -> None:
        """Give up after several crashes in a row. No crash is an empty text."""
        with self.lock:
            self.crashes = self.crashes + 1 if reason else 0
            if self.crashes >= CRASHES:
                self.stop(f"{reason}, {CRASHES} times in a row")

    def stop(self, reason: str) -> None:
        """Give up the waiting runs and report the reason."""
        with self.lock:
            self.shown.expect(-len(self.waiting))
            self.missing += len(self.waiting)
            self.waiting.clear()
            self.stopped = (
                f"{reason.removesuffix('.')}. {self.missing} runs are missing; the "
                "same command goes on where this one stopped."
            )


def do_runs(
    parts: Sequence[Part],
    at_once: int,
    hosts: Children | Cluster,
    numbers: Iterator[int],
) -> None:
    """Do all waiting runs of some parts with so many worker processes.

    ``numbers`` are those of the next processes. If this is interrupted, or a record
    cannot be written, all workers are stopped.
    """
    # The threads share these turns. A thread stays with a part as long as it has runs,
    # since starting a framework takes longer than many runs.
    turns = iter([part for _ in range(at_once) for part in parts])
    losses: list[str] = []

    def work(_: int) -> None:
        for part in turns:
            if loss := _do_part(part, hosts, numbers):
                losses.append(loss)
                break  # No machine is free: the other threads do the runs.

    run_jobs(hosts, range(at_once), work, at_once)
    for part in parts:
        if part.waiting:
            part.stop(losses[-1])


def _do_part(part: Part, hosts: Children | Cluster, numbers: Iterator[int]) -> str:
    """Do runs of a part until none is waiting.

    Return why there is no machine for them; else an empty text.
    """
    process = part.experiment.task, part.backend, part.request.device
    worker: Worker | None = None
    try:
        while not hosts.ended and (run := part.take()):
            try:
                worker = worker or Worker(*process, next(numbers), hosts)
                answer = worker.do(run)
            except NodeLostError as loss:
                part.put_back(run)
                if worker is None:
                    return str(loss)
                worker = None
            except WorkerEndedError as crash:
                part.put_back(run)
                part.count_crash(str(crash))
            except HarnessError as refusal:
                part.put_back(run)
                part.stop(str(refusal))
            else:
                if hosts.ended:  # This run did not fail, it was stopped.
                    break
                part.record(run, answer, worker)
                part.count_crash(answer["reason"] if worker.ended else "")
                worker = None if worker.ended else worker
    finally:
        if worker is not None:
            worker.stop()
    return ""
