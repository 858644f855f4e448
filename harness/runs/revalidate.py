"""Revalidate stale records: check whether the present code gives the same outcomes.

One run of each stale group (configuration, backend and device) is repeated. If its
outcome is equal, the group is verified. Otherwise all its stale runs are repeated and
recorded, and each new record names the one that it supersedes. After an interruption,
the next call resumes, because verified or repeated records are no longer stale.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.declarations.declare import SCALES, Experiment, Run
from harness.records.code import Sources
from harness.records.equality import Equality, compare_outcomes
from harness.records.record import Record, latest
from harness.records.staleness import Freshness
from harness.records.verified import Verification, group_of
from harness.runs.parts import Origin, Part, Report
from harness.runs.run import Sweep
from harness.runs.workers import Answer, Worker
from harness.tasks import TIMED

__all__ = ["Revalidation", "StaleReport"]

SHOWN = 10
"""Number of changed runs that a report lists. The others are counted."""


@dataclass
class Group:
    """The stale records of one configuration.

    Attributes:
        changed: whether the present code is known to give another outcome.
    """

    records: list[Record] = field(default_factory=list)
    changed: bool = False


@dataclass
class StaleReport(Report):
    """The result of revalidating one backend's stale records.

    Attributes:
        groups: number of groups with stale records.
        verified: number of equal groups, by comparison and its reason.
        covered: number of records of these groups.
        superseded: number of records that were replaced.
        changes: one sentence for each run whose outcome changed. Empty for tasks that
            measure time, since times always differ.
        others: number of stale records that were not repeated, by reason.
    """

    groups: int = 0
    verified: Counter[str] = field(default_factory=Counter)
    covered: int = 0
    superseded: int = 0
    changes: list[str] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        text = f"{self.backend}: {self.state}; stale groups: {self.groups}"
        lines = [self.reason] if self.reason else []
        for how, groups in self.verified.items():
            equal = "1 group is" if groups == 1 else f"{groups} groups are"
            lines.append(f"{equal} as before, compared {how}.")
        lines += [f"Records verified: {self.covered}."] if self.covered else []
        lines += [f"Records made anew: {self.superseded}."] if self.superseded else []
        lines += self.changes[:SHOWN]
        if len(self.changes) > SHOWN:
            lines.append(f"{len(self.changes) - SHOWN} further outcomes changed.")
        lines += [
            f"{n} stale records were left: {why}" for why, n in self.others.items()
        ]
        lines += [f"{reason} ({n} x)" for reason, n in self.reasons.items()]
        return "\n  ".join([text, *lines])


class StalePart(Part):
    """The stale records of one experiment on one backend, and their repetition.

    Attributes:
        asked: number of runs requested so far.
    """

    report: StaleReport

    def __init__(
        self,
        experiment: Experiment,
        report: StaleReport,
        device: str,
        home: Path,
        origin: Origin,
        stack: ExitStack,
        sources: Sources,
    ) -> None:
        super().__init__(experiment, report, device, home, origin, stack)
        self.scales = declared_scales(experiment)
        self.groups: dict[tuple[str, str], Group] = {}
        freshness = Freshness(home, self.backend, sources)
        for record in latest(self.records):
            if record.settled:
                self._sort(record, freshness.is_stale(record))
        self.stale = {r.id: r for group in self.groups.values() for r in group.records}
        report.groups = sum(bool(group.records) for group in self.groups.values())
        self.asked = 0
        self.timed = experiment.task in TIMED

    def begin(self) -> None:
        """Request one run of each group, or all runs if it is known to change."""
        for group in self.groups.values():
            group.changed = bool(group.records) and (group.changed or self.timed)
            self._repeat(group.records if group.changed else group.records[:1])

    def _sort(self, record: Record, stale: bool) -> None:
        """Put a record into its group if it can be repeated here."""
        others, device = self.report.others, record.subject["device"]
        group = self.groups.setdefault(group_of(record), Group())
        if not stale:
            self.report.settled += 1
            # An interrupted command has started to repeat this group.
            group.changed |= record.supersedes is not None
        elif device != self.device:
            others[f"they are of the device {device}; add --device {device}."] += 1
        elif record.id not in self.scales:
            others["the experiment no longer declares their runs."] += 1
        else:
            group.records.append(record)

    def _repeat(self, records: Sequence[Record]) -> None:
        self.asked += len(records)
        self.waiting.extend(
            Run(r.experiment, r.task, r.config, r.seed) for r in records
        )

    def _append(self, run: Run, answer: Answer, worker: Worker) -> Record:
        """Verify the group of a run, or append the run's new record."""
        before = self.stale[run.id]
        scale = self.scales[run.id]
        record = replace(self.record_of(run, answer, worker), scale=scale)
        # In float32, as the old record was read from its file.
        record = Record.from_json(record.as_json())
        if not record.settled:
            return self.keep(record)
        environments = self.store.environments
        equality = compare_outcomes(
            before.outcome,
            record.outcome,
            (
                environments.get(before.environment, {}),
                environments[record.environment],
            ),
        )
        group = self.groups[group_of(before)]
        if equality.equal and not group.changed:
            self._verify(before, record, equality, group)
            return record
        self.report.superseded += 1
        if not (equality.equal or self.timed):
            self.report.changes.append(f"{self._named(before)}: {equality}.")
        self.keep(replace(record, supersedes=before.digest))
        if not group.changed:
            group.changed = True
            self._repeat([r for r in group.records if r is not before])
        return record

    def _verify(
        self, before: Record, record: Record, equality: Equality, group: Group
    ) -> None:
        """Record that a group's records are valid for the code of a new run."""
        assert record.code is not None and record.start is not None
        name, device = group_of(before)
        which = (record.environment, record.seed, before.digest)
        how = (equality.comparison, record.start)
        self.store.verify(Verification(name, device, record.code, *which, *how))
        self.report.verified[equality.method] += 1
        self.report.covered += len(group.records)

    def _named(self, record: Record) -> str:
        """Return the varied settings and the seed of a record's run."""
        varied: Mapping[str, Any] = {
            name: record.config[name]
            for name in self.experiment.vary
            if name in record.config
        }
        words = [f"{name} {json.dumps(value)}" for name, value in varied.items()]
        return ", ".join([*words, f"seed {record.seed}"])


class Revalidation(Sweep):
    """The stale records of one experiment."""

    report_kind = StaleReport
    parts: dict[str, StalePart]  # type: ignore[assignment]

    def _part(
        self, report: Report, home: Path, origin: Origin, stack: ExitStack
    ) -> StalePart:
        assert isinstance(report, StaleReport)
        place = (self.request.device, home, origin, stack, Sources())
        return StalePart(self.experiment, report, *place)

    def _has_work(self, backend: str, home: Path) -> bool:
        """Whether a backend has records. A folder without records is not changed."""
        return (home / f"{backend}.jsonl").exists()

    def begin(self) -> None:
        """Request the runs that decide. If an outcome changed, more runs follow."""
        self.stage = "report"
        for part in self.parts.values():
            part.begin()
            self.shown.expect(part.name, part.asked)
        self._advance()

    def settled(self, part: Part, seconds: float | None) -> None:
        """Count a run, and update the number of requested runs."""
        self.shown.expect(part.name, self.parts[part.backend].asked)
        super().settled(part, seconds)

    def __str__(self) -> str:
        head = f"{self.experiment.name}: {self.experiment.question}"
        return "\n".join([head, *map(str, self.reports.values())])


def declared_scales(experiment: Experiment) -> dict[str, str]:
    """Return the smallest scale of each run that an experiment declares, by its id."""
    return {
        run.id: scale
        for scale in reversed(SCALES)
        for run in experiment.possible_runs(scale)
    }
