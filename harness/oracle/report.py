"""The results of the recorded cases and the old programs on the live originals."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from rich.console import Console
from rich.table import Table

from harness.errors import HarnessError
from lockstep.errors import sentence

Status = Literal["identical", "listed", "different", "error", "not live"]
BAD = ("different", "error")


@dataclass(frozen=True)
class CaseRow:
    """The result of a recorded case on the live original."""

    id: str
    family: str
    kind: str
    source: str
    status: Status
    optimizer: str = ""
    compared: int = 0
    different: int = 0
    ulp: float = 0.0
    reason: str = ""
    first: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ProgramRow:
    """The result of an old program: on the live original, and ported to Lockstep.

    ``ulp`` is Lockstep's distance from the recording; None if it was not run.
    """

    name: str
    status: Status
    lines: int = 0
    ulp: float | None = None
    exchanged: float | None = None
    reason: str = ""


@dataclass
class Report:
    """All results of a run, and the versions it ran on."""

    environment: dict[str, str] = field(default_factory=dict)
    cases: list[CaseRow] = field(default_factory=list)
    programs: list[ProgramRow] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether there was an unlisted difference or an error."""
        statuses = [row.status for row in self.cases]
        statuses += [row.status for row in self.programs]
        return any(status in BAD for status in statuses)

    def families(self) -> dict[str, list[CaseRow]]:
        """Return the cases by family."""
        rows_by_family: dict[str, list[CaseRow]] = {}
        for row in self.cases:
            rows_by_family.setdefault(row.family, []).append(row)
        return rows_by_family


def judged(line: Mapping[str, Any]) -> CaseRow:
    """Return the row of a printed line. A known difference gets the status listed."""
    content = dict(line)
    content["ulp"] = float(content.get("ulp", 0.0))
    row = CaseRow(**content)
    if row.status != "different":
        return row
    for entry in listed():
        if row.optimizer in entry["optimizer"] and row.ulp <= entry["ulp"]:
            changes = {"status": "listed", "reason": str(entry["reason"])}
            return CaseRow(**{**content, **changes})
    return row


@cache
def listed() -> Sequence[Mapping[str, Any]]:
    """Read ``listed.toml``."""
    path = Path(__file__).with_name("listed.toml")
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))["listed"]
    return entries


def write_report(report: Report, path: Path) -> None:
    """Write a report as JSON, one row per line, completely or not at all."""
    parts = [f'"environment": {json.dumps(report.environment)}']
    for name in ("cases", "programs"):
        rows = ",\n".join(json.dumps(_plain(row)) for row in getattr(report, name))
        parts.append(f'"{name}": [\n{rows}\n]')
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text("{\n" + ",\n".join(parts) + "\n}\n", "utf-8")
    unfinished.replace(path)


def read_report(path: Path) -> Report | None:
    """Read a report. Return None if there is none.

    Raises:
        HarnessError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
        cases = [CaseRow(**_numbers(row)) for row in content["cases"]]
        programs = [ProgramRow(**_numbers(row)) for row in content["programs"]]
        return Report(content["environment"], cases, programs)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        got = f"{type(error).__name__} ({error})"
        remedy = "restore it, or run nox -s oracle again"
        text = sentence(path.name, "a report of nox -s oracle", got, remedy)
        raise HarnessError(text) from error


def print_report(report: Report, console: Console) -> None:
    """Print one line per family and program, then every difference and error."""
    if report.cases:
        console.print(_cases_table(report))
    if report.programs:
        console.print(_programs_table(report))
    for row in report.cases:
        if row.status in BAD:
            explanation = row.reason or json.dumps(row.first)
            console.print(f"{row.status}  {row.id}: {explanation}", soft_wrap=True)
    reasons = Counter(row.reason for row in report.cases if row.status == "listed")
    for reason, number in reasons.items():
        console.print(f"listed  {number} cases: {reason}", soft_wrap=True)
    absent = {row.family for row in report.cases if row.status == "not live"}
    if absent:
        families = ", ".join(sorted(absent))
        text = f"not live  OpenSeq2Seq cannot be installed; its families: {families}"
        console.print(text, soft_wrap=True)


def _cases_table(report: Report) -> Table:
    statuses = get_args(Status)
    table = Table("family", "cases", *statuses, "values", box=None, pad_edge=False)
    for family, rows in report.families().items():
        counts = Counter(row.status for row in rows)
        numbers = [str(counts[status]) for status in statuses]
        values = sum(row.compared for row in rows)
        table.add_row(family, str(len(rows)), *numbers, str(values))
    return table


def _programs_table(report: Report) -> Table:
    titles = ("program", "original, live", "lines", "Lockstep: ULP", "exchanged", "")
    table = Table(*titles, box=None, pad_edge=False)
    for row in report.programs:
        apart = ["-" if u is None else f"{u:g}" for u in (row.ulp, row.exchanged)]
        table.add_row(row.name, row.status, str(row.lines), *apart, row.reason)
    return table


def _plain(row: CaseRow | ProgramRow) -> dict[str, Any]:
    """Return the row as a JSON object. Infinity becomes a string."""
    content = asdict(row)
    infinite = float("inf")
    return {k: "inf" if value == infinite else value for k, value in content.items()}


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    content = dict(row)
    for key in ("ulp", "exchanged"):
        if content.get(key) is not None:
            content[key] = float(content[key])
    return content
