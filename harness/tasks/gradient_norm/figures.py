"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme, marker
from harness.figures.tables import grouped
from harness.judgement.finding import Finding, joined
from harness.tasks.gradient_norm.findings import ROUNDING

__all__ = ["drawings"]

APART = 0.12
"""The distance of the points of two backends; kinds of gradients are 1 apart."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield norms(finding)


def norms(finding: Finding) -> Drawing:
    """The excess of the multitask norm over the stock one, a column per kind."""
    table = finding.tables["norms"]
    kinds = list(dict.fromkeys(table["gradients"]))
    backends = list(dict.fromkeys(table["backend"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        axes.axhspan(-ROUNDING, ROUNDING, color=theme.faint, alpha=0.2, lw=0)
        axes.axhline(0, color=theme.ink, lw=1)
        for (backend,), rows in grouped(table, "backend"):
            shift = APART * (backends.index(backend) - (len(backends) - 1) / 2)
            x = [kinds.index(kind) + shift for kind in rows["gradients"]]
            colour = theme.backends[backend.split(" ")[0]]
            axes.vlines(x, rows["lowest"], rows["highest"], color=colour)
            axes.plot(x, rows["above"], **marker(backend, backends, colour))
        axes.set_xticks(range(len(kinds)), kinds)
        axes.set_xlim(-0.5, len(kinds) - 0.5)
        limit = 1.5 * max(ROUNDING, *table[["lowest", "highest"]].abs().max())
        axes.set_ylim(-limit, limit)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("multitask norm above the\nstock norm (parts per million)")
        _note(axes, "above the band: the stock norm is underestimated")
        _legend(canvas, theme, backends)

    return Drawing(
        "norms",
        _title(table),
        alt="How far the norm of the multitask function lies above that of the stock "
        f"function, for each kind of gradients and each backend. {finding.answer}",
        caption="Points are medians over all lists, lines go from the lowest to the "
        "highest. If zeros led to an underestimated norm, the points would lie above "
        f"the band; inside it, within {ROUNDING:g} part per million, sums in another "
        "order are rounded differently.",
        data=table,
        size=(WIDTH, 3.2),
        paint=paint,
    )


def _title(table: pd.DataFrame) -> str:
    """Quote the largest difference on each backend."""
    parts = []
    for (backend,), rows in grouped(table, "backend"):
        largest = float(rows[["lowest", "highest"]].abs().max().max())
        within = f"within {largest:.2g} ppm" if largest else "the same to the bit"
        parts.append(f"{within} on {backend}")
    return f"The two norms are {joined(parts)}"


def _note(axes: Axes, text: str) -> None:
    """Write a text into the upper right corner."""
    place: Mapping[str, Any] = {"ha": "right", "va": "top", "fontsize": 8}
    axes.text(0.99, 0.97, text, transform=axes.transAxes, **place)


def _legend(canvas: Canvas, theme: Theme, backends: list[str]) -> None:
    handles: list[Line2D | Patch] = [
        Line2D(
            [],
            [],
            label=backend,
            **marker(backend, backends, theme.backends[backend.split(" ")[0]]),
        )
        for backend in backends
    ]
    handles.append(Patch(color=theme.faint, alpha=0.2, label="rounding"))
    canvas.legend(handles=handles, loc="outside lower center", ncols=len(handles))
