"""Heat maps of parity: tools or families by backends, colored by distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.pages.markup.templating import render
from harness.pages.parity.inserts import COMMAND, TOOLS, ulps
from harness.pages.parity.matrices import Report, Summary, read_report
from harness.parity.cases import FAMILIES

FEW = 0.25
"""A cell has a special color if a larger share of its cases is left out."""


LEVELS = {0.0: "exact", 1.0: "near", 4.0: "few", math.inf: "many"}
"""Largest distance in ULP -> the color of a family's cell."""


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
    families = {tool.name: tool.families for tool in TOOLS.values()}
    few = f"{FEW:.0%}"
    return _map(
        results,
        "Tool",
        families,
        _by_share,
        [
            ("exact", "the same bits"),
            ("near", "a few ULP"),
            (
                "left",
                f"more than {few} of the cases are replayed in part or not, because "
                "the backend has no counterpart",
            ),
        ],
    )


def family_map(results: Path) -> str:
    """Return the table of families by backends, with more levels of the distance."""
    families = {name: (name,) for name in FAMILIES}
    return _map(
        results,
        "Family",
        families,
        _by_distance,
        [
            ("exact", "the same bits"),
            ("near", "at most 1 ULP"),
            ("few", "at most 4 ULP"),
            ("many", "more"),
        ],
    )


def _map(
    results: Path,
    head: str,
    families: Mapping[str, Sequence[str]],
    style: Callable[[Summary], str],
    legend: Sequence[tuple[str, str]],
) -> str:
    report = read_report(results / "parity")
    if report is None:
        return render("not_measured.md.jinja", command=COMMAND)
    backends = list(dict.fromkeys(mode.backend for mode in report.modes))
    rows = [
        (name, [_cell(_summary(report, of, backend), style) for backend in backends])
        for name, of in families.items()
        if set(of) & set(report.families)
    ]
    cases = len({row.id for row in report.rows})
    shown = {"head": head, "backends": backends, "rows": rows, "legend": legend}
    return render("heat.html.jinja", cases=cases, **shown)


def _summary(report: Report, families: Sequence[str], backend: str) -> Summary:
    modes = [mode for mode in report.modes if mode.backend == backend]
    return Summary(
        [row for name in families for row in report.summary(name, *modes).rows]
    )


def _cell(summary: Summary, style: Callable[[Summary], str]) -> HeatCell:
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
    return HeatCell(ulps(_distance(summary)) or "raises", note, style(summary))


def _by_share(summary: Summary) -> str:
    """Return the color of a tool, which is special if many cases are left out."""
    if _left_out(summary) > FEW * len(summary.rows):
        return "left"
    return "near" if _distance(summary) else "exact"


def _by_distance(summary: Summary) -> str:
    distance = _distance(summary) or 0.0
    return next(style for limit, style in LEVELS.items() if distance <= limit)


def _distance(summary: Summary) -> float | None:
    return summary.worst.max_ulp if summary.worst else None


def _left_out(summary: Summary) -> int:
    return summary.counts["skipped"] + sum(row.in_part for row in summary.rows)
