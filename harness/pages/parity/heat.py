"""The heat map of the home page: tools by backends, colored by distance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.pages.markup.templating import render
from harness.pages.parity.inserts import COMMAND, TOOLS, ulps
from harness.pages.parity.matrices import Summary, read_report

FEW = 0.25
"""A cell has a special color if a larger share of its cases is left out."""


@dataclass(frozen=True)
class HeatCell:
    """A tool on a backend, over all execution modes.

    Attributes:
        text: the largest distance.
        note: how many replays are skipped, or compared in part.
        style: the color.
    """

    text: str
    note: str
    style: str


def heat_map(results: Path) -> str:
    """Return the table of tools by backends, or a sentence without a report."""
    report = read_report(results / "parity")
    if report is None:
        return render("not_measured.md.jinja", command=COMMAND)
    by_backend = {
        backend: [mode for mode in report.modes if mode.backend == backend]
        for backend in dict.fromkeys(mode.backend for mode in report.modes)
    }
    rows = [
        (
            tool.name,
            [
                _cell(
                    Summary(
                        [
                            row
                            for family in tool.families
                            for row in report.summary(family, *modes).rows
                        ]
                    )
                )
                for modes in by_backend.values()
            ],
        )
        for tool in TOOLS.values()
        if set(tool.families) & set(report.families)
    ]
    return render(
        "heat.html.jinja",
        cases=len({row.id for row in report.rows}),
        head="Tool",
        backends=list(by_backend),
        rows=rows,
        legend=[
            ("exact", "the same bits"),
            ("near", "a few ULP"),
            (
                "left",
                f"more than {FEW:.0%} of the cases are replayed in part or not, "
                "because the backend has no counterpart",
            ),
        ],
    )


def _cell(summary: Summary) -> HeatCell:
    if summary.counts["failed"]:
        return HeatCell(f"{summary.counts['failed']} failed", "", "bad")
    if not summary.replayed:
        return HeatCell("–", "not replayed", "none")
    counts = {
        "skipped": summary.counts["skipped"],
        "in part": sum(row.in_part for row in summary.rows),
    }
    total = len(summary.rows)
    note = ", ".join(f"{n} of {total} {how}" for how, n in counts.items() if n)
    distance = summary.worst.max_ulp if summary.worst else None
    style = "near" if distance else "exact"
    if sum(counts.values()) > FEW * total:
        style = "left"
    return HeatCell(ulps(distance) or "raises", note, style)
