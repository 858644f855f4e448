"""Inserts of the live originals' results, and of old programs on Lockstep."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from harness.oracle.old_programs import find, programs
from harness.oracle.report import ProgramRow, Report, read_report
from harness.pages.parity import ulps
from harness.pages.tables import CARDS, Cell, table
from harness.pages.templating import number, render

COMMAND = ".venv/bin/nox -s oracle -- --report results/oracle/report.json"


def oracle_inserts(results: Path) -> dict[str, str]:
    """Return name -> insert about the live originals; without a run, inserts say so."""
    report = read_report(results / "oracle/report.json")
    if report is None:
        nothing = render("not_measured.md.jinja", command=COMMAND)
        return dict.fromkeys(("oracle_summary", "oracle_programs"), nothing)
    return {"oracle_summary": _summary(report), "oracle_programs": _programs(report)}


def _summary(report: Report) -> str:
    counts = Counter(row.status for row in report.cases)
    live = len(report.cases) - counts["not live"]
    apart = {row.reason for row in report.cases if row.status == "listed"}
    values = sum(row.compared for row in report.cases)
    sentences = [
        f"Of {number(live)} recorded cases of TensorFlow 1.15, "
        f"{number(counts['identical'])} came out the same to the bit "
        f"({number(values)} recorded quantities were compared)."
    ]
    if counts["listed"]:
        worst = max(row.ulp for row in report.cases if row.status == "listed")
        listed = f"{number(counts['listed'])} are listed, at most {ulps(worst)} apart"
        sentences.append(f"{listed}: {'; '.join(apart)}.")
    bad = counts["different"] + counts["error"]
    if bad:
        sentences.append(f"{number(bad)} differ or could not be replayed.")
    about = ", ".join(f"{name} {v}" for name, v in report.environment.items())
    return " ".join([*sentences, f"Run on {about}."]) + "\n"


def _programs(report: Report) -> str:
    rows: list[list[Cell | str]] = [
        [
            Cell(row.name, row.name, "code"),
            Cell(find(row.name).shows.replace("`", ""), None, "wrap", _why(row)),
            row.status,
            _apart(row),
        ]
        for row in report.programs
        if row.name in programs()
    ]
    columns = ["Program", "Shows", "On the original, live", "On Lockstep"]
    title = "Old programs: what they printed, recorded and now"
    return table(title, columns, rows, style=CARDS)


def _apart(row: ProgramRow) -> Cell:
    """Return the distance between Lockstep and the recording."""
    if row.ulp is None:
        return Cell("not run", None, "none")
    worst = max(row.ulp, row.exchanged or 0.0)
    within = row.status in ("identical", "not live")
    return Cell(ulps(worst), worst, "good" if within else "bad")


def _why(row: ProgramRow) -> tuple[str, ...]:
    """Return the note of a program that did not run, or printed other numbers."""
    apart = row.ulp or row.exchanged
    why = row.reason or (find(row.name).reason if apart else "")
    return (why,) if why else ()
