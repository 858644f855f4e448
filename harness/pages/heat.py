"""Parity as a picture: tools by backends, colored by the largest distance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.pages.parity import Report, Summary, read_report
from harness.pages.parity_inserts import COMMAND, TOOLS, Tool, ulps
from harness.pages.templating import render

__all__ = ["heat_map"]

FEW = 0.25
"""A cell has a color of its own if a larger share of its cases is left out."""


@dataclass(frozen=True)
class HeatCell:
    """A tool on a backend, in all execution modes together.

    Attributes:
        text: the largest distance.
        note: how many replays are left out, whole or in part.
        style: the color.
    """

    text: str
    note: str
    style: str


def heat_map(results: Path) -> str:
    """Return the picture as a table; a sentence where parity was not recorded."""
    report = read_report(results / "parity")
    if report is None:
        return render("not_measured.md.jinja", command=COMMAND)
    backends = list(dict.fromkeys(mode.backend for mode in report.modes))
    rows = [
        (tool.name, [_cell(report, tool, backend) for backend in backends])
        for tool in TOOLS.values()
        if set(tool.families) & set(report.families)
    ]
    cases = len({row.id for row in report.rows})
    few = f"{FEW:.0%}"
    return render("heat.html.jinja", backends=backends, rows=rows, cases=cases, few=few)


def _cell(report: Report, tool: Tool, backend: str) -> HeatCell:
    modes = [mode for mode in report.modes if mode.backend == backend]
    summary = Summary(
        [row for name in tool.families for row in report.summary(name, *modes).rows]
    )
    if summary.counts["failed"]:
        return HeatCell(f"{summary.counts['failed']} failed", "", "bad")
    if not summary.replayed:
        return HeatCell("–", "not replayed", "none")
    left_out = summary.counts["skipped"] + sum(row.in_part for row in summary.rows)
    note = f"{left_out} of {len(summary.rows)} left out" if left_out else ""
    distance = summary.worst.max_ulp if summary.worst else None
    if left_out > FEW * len(summary.rows):
        style = "left"
    else:
        style = "near" if distance else "exact"
    return HeatCell(ulps(distance) or "raises", note, style)
