"""The figure of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure as Canvas

from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme
from harness.judgement.finding import Finding
from harness.tasks.gpu_steps.settings import GRAPH, STACKS, WAYS
from harness.tasks.gpu_steps.tables import waits

__all__ = ["drawings"]

HEIGHT = 0.26
"""Of a bar; the bars of a stack touch."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figure; nothing without runs on a GPU."""
    if "steps" in finding.tables:
        yield times(finding)


def times(finding: Finding) -> Drawing:
    """Microseconds a step; a group of bars per stack, a bar per way."""
    table = finding.tables["steps"]
    table = table[table["device"] == table["device"].iloc[0]]
    stacks = [name for name in STACKS if (table["stack"] == name).any()]
    graphs = table[table["way"] == GRAPH].set_index("stack")["time"]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        colours = dict(
            zip(WAYS, (theme.faint, theme.ink, theme.methods["default"]), strict=True)
        )
        for k, way in enumerate(WAYS):
            rows = table[table["way"] == way].set_index("stack").reindex(stacks)
            places = [place + (k - 1) * HEIGHT for place in range(len(stacks))]
            spread = [rows["time"] - rows["time_low"], rows["time_high"] - rows["time"]]
            axes.barh(places, rows["time"], HEIGHT, color=colours[way], label=way)
            axes.errorbar(rows["time"], places, xerr=spread, fmt="none", ecolor="gray")
            for place, (_, row) in zip(places, rows.iterrows(), strict=True):
                if np.isfinite(row["time"]):
                    text = f" {row['time']:,.0f} µs, {waits(row['waits'])}"
                    axes.annotate(text, (row["time_high"], place), va="center")
        axes.margins(x=0.3)
        axes.set_yticks(range(len(stacks)), stacks)
        axes.invert_yaxis()
        axes.set_xlabel("microseconds a step")
        axes.grid(visible=False, axis="y")
        canvas.legend(loc="outside lower center", ncols=len(WAYS))

    slowest = graphs.max() / graphs.get("bare", np.nan) if len(graphs) else np.nan
    return Drawing(
        "times",
        f"In a CUDA graph the slowest stack takes {slowest:.0f} times a bare step on "
        f"{table['device'].iloc[0]}",
        alt=f"Microseconds a step of each stack and way. {finding.answer}",
        caption="Median over seeds with its 95% interval. Beside each bar is the time "
        "and how often a step waits for the GPU. Host: a step as usual. Capturable: "
        "with capturable=True, but without a graph.",
        data=table,
        size=(WIDTH, 4.4),
        paint=paint,
    )
