"""Run an experiment: one worker process a backend does the runs that are missing.

declared runs - settled records -> worker -> outcome -> one line appended to results/

The worker trains; this process alone writes. Killing either loses at most the runs in
flight, and the next start does what is missing.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Literal, TypeAlias

from harness.declare import Experiment, Run
from harness.errors import HarnessError
from harness.processes import Children, run_lines
from harness.progress import progress
from harness.records.code import commit_of
from harness.records.files import RESULTS, folder
from harness.records.record import Code, Record, latest
from harness.records.store import Store
from lockstep import registry
from lockstep.spec.errors import MissingFrameworkError, unknown_name

__all__ = ["Report", "sweep"]

Answer: TypeAlias = dict[str, Any]


@dataclass
class Report:
    """What one backend did in a sweep.

    Attributes:
        state: ``skipped`` before any work, ``stopped`` before the end, or ``done``.
        reason: one sentence, empty when done.
        kept: runs that were settled before.
        counts: new records by status.
        reasons: how often each reason of a run that is not ``ok`` was given.
    """

    backend: str
    state: Literal["done", "stopped", "skipped"] = "done"
    reason: str = ""
    kept: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> bool:
        """Whether runs that should have been done were not."""
        return self.state == "stopped" or self.counts["error"] > 0

    def __str__(self) -> str:
        new = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        text = f"{self.backend}: {self.state}; {new or 'no new runs'}; {self.kept} kept"
        notes = [f"{reason} ({n} x)" for reason, n in self.reasons.items()]
        return "\n  ".join([text, *filter(None, [self.reason]), *notes])


def sweep(
    experiment: Experiment,
    scale: str,
    backends: Sequence[str] = (),
    device: str = "cpu",
    publish: bool = False,
    root: Path = RESULTS,
    seeds: int | None = None,
    command: str = "",
) -> list[Report]:
    """Do every run of a scale that has no settled record yet.

    Args:
        backends: those to run on; none means all of the experiment that are installed.
        device: ``cpu``, or what the frameworks call another device, such as ``cuda``.
        publish: write into ``results/EXPERIMENT`` instead of ``results/local``.
        seeds: only the first so many of the scale; none means all.
        command: the words after ``harness`` that asked for this.

    Returns:
        One report a backend.

    Raises:
        HarnessError: nothing can be run as asked, or written; nothing was changed.
    """
    runs = experiment.runs(scale, seeds)
    reports = {name: Report(name) for name in backends or experiment.backends}
    home = folder(experiment.name, publish, root)
    commit, dirty = commit_of()
    origin = {
        "scale": scale,
        "command": command,
        "commit": commit,
        "dirty": dirty,
    }
    with ExitStack() as stack:
        crews: dict[str, Crew] = {}
        for name, report in reports.items():
            if _can_run(experiment, name, bool(backends), report):
                number = {"process": len(crews)}
                crew = Crew(report, runs, device, home, stack, origin | number)
                crews[name] = crew
        totals = {name: len(crew.pending) for name, crew in crews.items()}
        display = stack.enter_context(progress(totals))
        for name, answer in _answers(crews, stack):
            if crews[name].take(answer):
                display.advance(name)
    return list(reports.values())


class Crew:
    """One backend's part in a sweep: its missing runs and its file."""

    def __init__(
        self,
        report: Report,
        runs: Sequence[Run],
        device: str,
        home: Path,
        stack: ExitStack,
        origin: Mapping[str, Any],
    ) -> None:
        name = report.backend
        self.report, self.device, self.origin = report, device, dict(origin)
        self.state = {name: self.origin.pop(name) for name in ("commit", "dirty")}
        self.store = stack.enter_context(Store(home, name))
        settled = {r.key for r in latest(self.store.records) if r.settled}
        self.pending = {r.id: r for r in runs if (r.id, name, device) not in settled}
        report.kept = len(runs) - len(self.pending)
        self.subject: Mapping[str, str] = {}
        self.environment = ""

    def take(self, answer: Answer) -> bool:
        """Act on one answer of the worker; say whether it was a run."""
        if "ended" in answer:
            self.end(answer)
        elif "environment" in answer:
            self.introduce(answer)
        else:
            self.record(self.pending.pop(answer.pop("id")), answer)
            return True
        return False

    def introduce(self, answer: Answer) -> None:
        """Note what the worker is; write its environment down if it is new."""
        self.subject = answer["subject"]
        self.environment = self.store.environment(answer["environment"])

    def record(self, run: Run, answer: Answer) -> None:
        """Append the record of one run, and its code if that is new."""
        code = Code(**self.state, digest=self.store.code(answer.pop("modules")))
        record = Record(
            **asdict(run),
            **answer,
            **self.origin,
            id=run.id,
            subject=self.subject,
            environment=self.environment,
            code=code,
        )
        self.store.append(record)
        self.report.counts[record.status] += 1
        if record.reason:
            self.report.reasons[record.reason] += 1

    def end(self, answer: Answer) -> None:
        """Report a worker that refused to work, or died before its last run."""
        if self.pending:
            why = answer["refused"] or f"the worker ended ({answer['ended']})"
            again = "the same command goes on where this one stopped"
            left = f"{len(self.pending)} runs are missing; {again}"
            why = why.removesuffix(".")
            self.report.state, self.report.reason = "stopped", f"{why}. {left}."


def _can_run(experiment: Experiment, name: str, named: bool, report: Report) -> bool:
    """Say whether a backend can be used; a missing one is an error if it was named."""
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


def _answers(
    crews: Mapping[str, Crew], stack: ExitStack
) -> Iterator[tuple[str, Answer]]:
    """Start a worker for every crew with work; yield what they say until all ended."""
    queue: Queue[tuple[str, Answer]] = Queue()
    working = [name for name, crew in crews.items() if crew.pending]
    stopped, children = threading.Event(), Children()
    stack.callback(children.end)
    stack.callback(stopped.set)
    for name in working:
        runs = list(crews[name].pending.values())
        arguments = (name, crews[name].device, runs, queue, stopped, children)
        threading.Thread(target=_converse, args=arguments, daemon=True).start()
    while working:
        try:
            # Not for ever: a signal that comes while this thread falls asleep is seen
            # only when it wakes.
            name, answer = queue.get(timeout=1)
        except Empty:
            continue
        yield name, answer
        if "ended" in answer:
            working.remove(name)


def _converse(
    name: str,
    device: str,
    runs: Sequence[Run],
    queue: Queue[tuple[str, Answer]],
    stopped: threading.Event,
    children: Children,
) -> None:
    """Hand a worker its runs and pass on its answers; the last says how it ended."""
    refused = ""

    def pass_on(line: str) -> None:
        nonlocal refused
        if stopped.is_set():
            raise InterruptedError
        # A worker that is killed may leave half a line.
        if line.endswith("\n"):
            answer = json.loads(line)
            refused = answer.get("refused", "")
            if not refused:
                queue.put((name, answer))

    asked = "".join(json.dumps(asdict(run)) + "\n" for run in runs)
    with suppress(InterruptedError):
        place = ("harness.worker", [name, device], asked)
        status, said = run_lines(*place, pass_on, children)
        ended = f"signal {-status}" if status < 0 else f"exit status {status}"
        last = said.strip().splitlines()[-1:]
        queue.put((name, {"ended": ", ".join([ended, *last]), "refused": refused}))
