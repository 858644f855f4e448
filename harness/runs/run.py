"""Run experiments: worker processes do the runs that are missing.

declared runs - settled records -> workers -> outcomes -> lines appended to results/

Workers train. Only this process writes. If either is killed, at most the runs in
progress are lost, and the next start does them. If an experiment tunes a value, its
validation runs are done first, because the other runs depend on their records.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from harness.declarations.declare import Experiment
from harness.declarations.tune import choice_lines, with_choices
from harness.errors import HarnessError
from harness.processes.children import Children
from harness.processes.cluster import Cluster
from harness.records.code import commit_of
from harness.records.files import RESULTS, folder, read
from harness.records.record import latest
from harness.runs.parts import Origin, Part, Report
from harness.runs.progress import Progress
from harness.runs.schedule import Schedule, do_all
from harness.runs.workers import Hosts
from harness.tasks import TIMED
from lockstep import registry
from lockstep.errors import MissingFrameworkError, sentence, unknown_name

__all__ = ["Request", "Sweep", "sweep"]

CORES_OF_BUDGET = 2
"""``budget_minutes`` is measured with this many cores."""


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
        shown = stack.enter_context(Progress(jobs))
        checkout = commit_of()
        origin = Origin(request.scale, request.command, checkout)
        sweeps = [Sweep(each, request, origin, shown, stack) for each in experiments]
        timed = [each for each in sweeps if each.experiment.task in TIMED]
        others = [each for each in sweeps if each not in timed]
        for each in sweeps:
            each.begin()
        missing = shown.total
        if missing:
            at_once = jobs if any(map(_has_runs, others)) else 1
            shown.write(f"{missing} runs to do; worker processes: {at_once}")
        stack.callback(hosts.end)
        for group, most in ((others, jobs), (timed, 1)):
            _do(group, most, hosts, stack)
    return [report for each in sweeps for report in each.reports.values()]


def _has_runs(sweep: Sweep) -> bool:
    """Whether an experiment has unfinished runs."""
    return not all(part.idle for part in sweep.parts.values())


def _do(sweeps: Sequence[Sweep], jobs: int, hosts: Hosts, stack: ExitStack) -> None:
    """Do the runs of some experiments. Stop the workers whenever this ends."""
    owners = {part: each for each in sweeps for part in each.parts.values()}

    def settled(part: Part, seconds: float | None) -> None:
        owners[part].settled(part, seconds)

    schedule = Schedule(list(owners), settled)
    stack.callback(schedule.stop)
    if any(map(_has_runs, sweeps)):
        do_all(schedule, jobs, hosts)


class Sweep:
    """One experiment of a command.

    Attributes:
        reports: one for each requested backend.
        parts: one for each backend that can be used.
        stage: ``validation``, ``report`` or, when all is done, ``end``.
    """

    def __init__(
        self,
        experiment: Experiment,
        request: Request,
        origin: Origin,
        shown: Progress,
        stack: ExitStack,
    ) -> None:
        self.experiment, self.request, self.shown = experiment, request, shown
        self.stage: Literal["validation", "report", "end"] = "validation"
        names = request.backends or experiment.backends
        self.reports = {name: Report(name) for name in names}
        home = folder(experiment.name, request.publish, request.root)
        self.parts = {
            name: Part(experiment, report, request.device, home, origin, stack)
            for name, report in self.reports.items()
            if _can_run(experiment, name, bool(request.backends), report)
        }

    def begin(self) -> None:
        """Request the first runs, and show the total number of runs."""
        scale, count = self.request.scale, self.request.seeds
        seeds = self.experiment.scale(scale).seeds if count is None else count
        for part in self.parts.values():
            runs = len(self.experiment.arms(scale)) * seeds
            self.shown.expect(part.name, runs)
        self._choose()
        first = self.parts.get(self.experiment.backends[0])
        if first and self._lacking:
            first.ask(self.experiment.validation_runs(scale))
            self._expect(first)
        self._advance()

    def settled(self, part: Part, seconds: float | None) -> None:
        """Count a run. Request the runs that depend on it."""
        if seconds is not None:
            self.shown.advance(self._name(part), seconds)
        if part.report.state == "stopped":
            self.shown.close(self._name(part))
        self._advance()

    def _advance(self) -> None:
        """Start the next stage when all runs of this one are done."""
        if self.stage == "validation" and self._idle:
            self._choose()
            self.stage = "report"
            self._ask_for_report()
        if self.stage == "report" and self._idle:
            self.stage = "end"
            self.shown.write(str(self))

    @property
    def _idle(self) -> bool:
        return all(part.idle for part in self.parts.values())

    def _name(self, part: Part) -> str:
        """Return the name that progress shows for a part at this stage."""
        validation = self.stage == "validation"
        return f"{part.name}, validation" if validation else part.name

    def _expect(self, part: Part) -> None:
        """Show the number of waiting runs of a part and their expected duration."""
        durations = [r.duration for r in part.records if r.scale == self.request.scale]
        known = [seconds for seconds in durations if seconds is not None]
        before = fmean(known) if known else None
        self.shown.expect(self._name(part), len(part.waiting), before)

    def _ask_for_report(self) -> None:
        """Request the runs of the report from every backend."""
        runs = self.experiment.runs(self.request.scale, self.request.seeds)
        for part in self.parts.values():
            if part.report.state == "done":
                part.ask(runs)
            self._expect(part)
        if self._lacking:
            self._report_lack()

    @property
    def _lacking(self) -> int:
        """Number of arms without a value, if a value is tuned."""
        if self.experiment.tune is None:
            return 0
        arms = self.experiment.arms(self.request.scale)
        return len(arms) - len(self.experiment.choices.get(self.request.scale, ()))

    def _choose(self) -> None:
        """Choose the tuned values from the records of the first backend.

        If that backend is not run, the user's own records are used, else the published
        ones.
        """
        first = self.experiment.backends[0]
        if first in self.parts:
            sources = [self.parts[first].records]
        else:
            name, root = f"{first}.jsonl", self.request.root
            homes = [folder(self.experiment.name, p, root) for p in (False, True)]
            own = homes[1:] if self.request.publish else homes
            sources = [read(home / name) for home in own]
        last = [latest(records) for records in sources]
        self.experiment = with_choices(self.experiment, *last)

    def _report_lack(self) -> None:
        """Report that the runs of arms without a value could not be done."""
        first = self.experiment.backends[0]
        expected = f"all validation runs of [tune] on {first}, which choose values"
        arms = len(self.experiment.arms(self.request.scale))
        got = f"{self._lacking} of {arms} arms that lack some"
        remedy = f"run it on {first} until none ends with an error"
        text = sentence(self.experiment.name, expected, got, remedy)
        for report in self.reports.values():
            if report.state == "done":
                report.stop(text)

    def __str__(self) -> str:
        head = f"{self.experiment.name} ({self.request.scale}): "
        lines = [f"{head}{self.experiment.question}", *map(str, self.reports.values())]
        if self.experiment.choices.get(self.request.scale):
            chosen = choice_lines(self.experiment, self.request.scale)
            lines += ["chosen by validation:", *(f"  {line}" for line in chosen)]
        return "\n".join([*lines, *filter(None, [self._over_budget()])])

    def _over_budget(self) -> str:
        """Return a sentence if the runs of scale std exceed the budget, else ""."""
        validation = self.experiment.validation_runs("std")
        declared = {run.id for run in [*validation, *self.experiment.runs("std")]}
        every = [r for part in self.parts.values() for r in latest(part.records)]
        seconds = sum(r.duration or 0 for r in every if r.id in declared)
        cores = 1 if self.experiment.task in TIMED else CORES_OF_BUDGET
        minutes, budget = seconds / 60 / cores, self.experiment.budget_minutes
        if self.request.scale != "std" or minutes <= budget:
            return ""
        expected = f"runs of at most {budget:g} minutes on {cores} cores"
        remedy = "do with fewer arms, values, steps or seeds, or raise budget_minutes"
        return sentence(self.experiment.name, expected, f"{minutes:.1f}", remedy)


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
