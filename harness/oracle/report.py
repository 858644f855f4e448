"""The results of the recorded cases and the old programs on the live originals."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import BaseModel, ValidationError
from rich.console import Console

from harness.errors import HarnessError
from harness.oracle.distances import distances
from harness.parity.cases import Case
from lockstep.errors import sentence

Status = Literal["identical", "listed", "different", "error", "not live"]
BAD = ("different", "error")
LISTED = Path(__file__).with_name("listed.toml")


class CaseRow(BaseModel, ser_json_inf_nan="strings"):
    """The result of a recorded case on the live original.

    ``compared`` is the number of recorded quantities.
    """

    id: str
    family: str
    kind: str
    status: Status = "not live"
    optimizer: str = ""
    compared: int = 0
    ulp: float = 0.0
    reason: str = ""


class ProgramRow(BaseModel, ser_json_inf_nan="strings"):
    """The result of an old program: on the live original, and ported to Lockstep.

    ``ulp`` is Lockstep's distance from the recording, ``exchanged`` that after it went
    on from the original's checkpoint, or the other way round; None if it was not run.
    """

    name: str
    status: Status
    lines: int = 0
    ulp: float | None = None
    exchanged: float | None = None
    reason: str = ""


class Report(BaseModel):
    """All results of a run, and the versions it ran on."""

    environment: dict[str, str] = {}
    cases: list[CaseRow] = []
    programs: list[ProgramRow] = []

    @property
    def failed(self) -> bool:
        """Whether there was an unlisted difference or an error."""
        statuses = [row.status for row in self.cases]
        statuses += [row.status for row in self.programs]
        return any(status in BAD for status in statuses)

    def write(self, path: Path) -> None:
        """Write the report as JSON, completely or not at all."""
        text = self.model_dump_json(indent=1, exclude_defaults=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_text(text + "\n", "utf-8")
        unfinished.replace(path)


def read_report(path: Path) -> Report | None:
    """Read a report. Return None if there is none.

    Raises:
        HarnessError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        return Report.model_validate_json(path.read_text("utf-8"))
    except ValidationError as error:
        got, remedy = f"{error.error_count()} wrong values", "write it again"
        text = sentence(str(path), "a report of nox -s oracle", got, remedy)
        raise HarnessError(text) from error


def judged(case: Case, live: Mapping[str, Any]) -> CaseRow:
    """Return the row of a case. A known difference gets the status listed.

    Args:
        case: as it was recorded.
        live: its result now, as ``expected``; ``note`` is the message of an exception.
    """
    row = CaseRow(id=case.id, family=case.family, kind=case.kind)
    row.optimizer, row.status = case.optimizer, "identical"
    recorded, got = case.expected, live["expected"]
    raised, error = recorded.get("raises"), got.get("raises")
    if raised != error:
        row.status = "error"
        row.reason = f"expected {raised or 'a result'}, got {error or 'a result'}"
        row.reason += f": {live['note']}" if error else ""
        return row
    compared = list(distances(recorded, recorded_part(got, recorded), "", halves(case)))
    row.compared = len(compared)
    row.ulp = max(ulp for ulp, _ in compared)
    if row.ulp:
        row.status = "different"
        row.reason = next(text for ulp, text in compared if ulp)
        for entry in tomllib.loads(LISTED.read_text("utf-8"))["listed"]:
            if row.optimizer in entry["optimizer"] and row.ulp <= entry["ulp"]:
                row.status, row.reason = "listed", entry["reason"]
    return row


def recorded_part(got: Any, recorded: Any) -> Any:
    """Return what was recorded, too: the originals give more than some recordings."""
    if isinstance(got, dict) and isinstance(recorded, dict):
        both = [key for key in got if key in recorded]
        return {key: recorded_part(got[key], recorded[key]) for key in both}
    if isinstance(got, list) and isinstance(recorded, list):
        if len(got) == len(recorded):
            return list(map(recorded_part, got, recorded))
    return got


def halves(case: Case) -> frozenset[str]:
    """Return the names of the float16 variables of a case."""
    variables = [v for v in case.inputs.get("variables", []) if isinstance(v, dict)]
    return frozenset(v["name"] for v in variables if v["dtype"] == "float16")


def print_report(report: Report, console: Console) -> None:
    """Print counts by family and the programs, then every difference and error."""
    if report.cases:
        cases = pd.DataFrame([row.model_dump() for row in report.cases])
        table = pd.crosstab(cases.family, cases.status)
        table["quantities"] = cases.groupby("family").compared.sum()
        console.print(table.to_string(), highlight=False)
    if report.programs:
        programs = pd.DataFrame([row.model_dump() for row in report.programs])
        titles = {"status": "original, live", "ulp": "Lockstep: ULP"}
        table = programs.rename(columns=titles).fillna("-")
        console.print(table.to_string(index=False), highlight=False)
    for row in report.cases:
        if row.status in BAD:
            text = f"{row.status}  {row.id}: {row.reason}"
            console.print(text, soft_wrap=True, markup=False)
    listed = Counter(row.reason for row in report.cases if row.status == "listed")
    for reason, number in listed.items():
        console.print(f"listed  {number} cases: {reason}", soft_wrap=True)
    if any(row.status == "not live" for row in report.cases):
        console.print("not live  OpenSeq2Seq cannot be installed any more")
