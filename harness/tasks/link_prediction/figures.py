"""The figures of the experiment, each a function of a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from harness.axes import log_axis
from harness.finding import Finding
from harness.plot import Drawing
from harness.style import THIN, WIDTH, Theme
from harness.tasks.embeddings.cells import quoted
from harness.tasks.embeddings.drawing import draw_curves, draw_intervals, legend
from harness.tasks.link_prediction.findings import NEGLIGIBLE

__all__ = ["drawings"]

ENDS = {"none": "without a limit", "clip": "with rows clipped", "lookup": "normalised"}
MEASURES = {"mrr": "mean reciprocal rank", "hits": "hits@10", "loss": "training loss"}


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield what there is to draw, in reading order."""
    if len(finding.tables["effect"]):
        yield _effect(finding)
    yield _ranks(finding)
    yield _norms(finding)


def _effect(finding: Finding) -> Drawing:
    table = finding.tables["effect"]
    needed = table[(table["limit"] == "none") & (table["what"] == "mrr")]
    worse = int((needed["high"] < -NEGLIGIBLE).sum())
    loss = table[(table["limit"] == "none") & (table["what"] == "loss")]
    title = "What a limit changes at the end of training"
    if len(needed):
        title = (
            f"Without a limit ranks end worse in {worse} of {len(needed)} cases, the "
            f"training loss lower in {(loss['high'] < 0).sum()}"
        )
    return Drawing(
        "effect",
        title,
        alt="Differences at the end of training to runs with clipped rows, of mean "
        "reciprocal rank, hits@10 and training loss, with intervals. "
        f"{finding.answer}",
        caption="Mean difference to the runs with rows clipped after each step (0 in "
        "the picture), paired by seed, with its 95 % interval. For ranks, left of 0 is "
        "worse than clipped; for the loss it is better. Shaded: differences of ranks "
        "that nobody would mind.",
        data=table,
        size=(WIDTH, 4.2),
        paint=partial(_paint_effect, table=table),
    )


def _paint_effect(canvas: Canvas, theme: Theme, table: pd.DataFrame) -> None:
    cases = list(dict.fromkeys(zip(table["start"], table["optimizer"], strict=True)))
    backends, limits = (
        list(dict.fromkeys(table[name])) for name in ("backend", "limit")
    )
    panels = canvas.subplots(1, len(MEASURES), sharey=True)
    lines = list(product(limits, backends))
    for panel, (what, title) in zip(panels, MEASURES.items(), strict=True):
        here = table[table["what"] == what].copy()
        here["place"] = [
            cases.index((row["start"], row["optimizer"]))
            + 0.16
            * (lines.index((row["limit"], row["backend"])) - (len(lines) - 1) / 2)
            for _, row in here.iterrows()
        ]
        if what != "loss":
            panel.axvspan(-NEGLIGIBLE, NEGLIGIBLE, color=theme.faint, alpha=0.35, lw=0)
        panel.axvline(0, color=theme.ink, lw=THIN)
        draw_intervals(panel, here, theme)
        panel.set_title(title)
        panel.set_xlabel("difference to clipped")
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.grid(visible=False, axis="y")
    panels[0].set_yticks(
        range(len(cases)), [f"{name}\nfrom norm {start:.2g}" for start, name in cases]
    )
    panels[0].set_ylim(len(cases) - 0.5, -0.5)
    legend(canvas, theme, limits, backends, lines=False)


def _ranks(finding: Finding) -> Drawing:
    curves = finding.tables["curves"]
    chosen = curves[curves["what"] == "mrr"]
    last = _last(chosen)
    ends = {name: quoted(last[last["limit"] == name]["median"]) for name in ENDS}
    parts = [f"{ENDS[name]} at {end}" for name, end in ends.items() if end]
    return Drawing(
        "ranks",
        f"Ranks end {', '.join(parts)}",
        alt="Mean reciprocal rank over the steps, one panel for each optimizer and "
        "start, for the three ways to limit norms.",
        caption="Mean reciprocal rank of held-out links, other true links left out "
        "(filtered). Median over seeds, the 95 % interval as a band.",
        data=chosen,
        size=(WIDTH, 4.8),
        paint=partial(_paint_ranks, chosen=chosen),
    )


def _paint_ranks(canvas: Canvas, theme: Theme, chosen: pd.DataFrame) -> None:
    _paint_curves(canvas, theme, chosen, "mean reciprocal rank")


def _norms(finding: Finding) -> Drawing:
    curves = finding.tables["curves"]
    chosen = curves[curves["what"] == "norm/highest"]
    last = _last(chosen)
    free = quoted(last[last["limit"] == "none"]["median"], ".1f")
    title = f"Without a limit the longest row reaches norm {free}"
    return Drawing(
        "norms",
        title if free else "The norm of the longest row, held to a limit",
        alt="Highest norm of an entity's row over the steps, one panel for each "
        "optimizer and start. Without a limit it grows; else it stays at the limit.",
        caption="The highest norm of an entity's row, as the model uses it; the thin "
        "line is the limit. Median over seeds, the 95 % interval as a band.",
        data=chosen,
        size=(WIDTH, 4.8),
        paint=partial(_paint_norms, chosen=chosen),
    )


def _paint_norms(canvas: Canvas, theme: Theme, chosen: pd.DataFrame) -> None:
    limit = Line2D([], [], color=theme.ink, lw=THIN, label="limit")
    panels = _paint_curves(canvas, theme, chosen, "highest norm", [limit])
    log_axis(panels[0], "y", [1, 2, 3, 5, 7, 10])
    for panel in panels:
        panel.axhline(chosen["max_norm"].iloc[0], color=theme.ink, lw=THIN)


def _paint_curves(
    canvas: Canvas,
    theme: Theme,
    chosen: pd.DataFrame,
    label: str,
    extra: Sequence[Line2D] = (),
) -> list[Axes]:
    """Draw one panel a start (rows) and optimizer (columns); return them."""
    starts, names = (list(dict.fromkeys(chosen[c])) for c in ("start", "optimizer"))
    shape = len(starts), len(names)
    panels = canvas.subplots(*shape, sharex=True, sharey=True, squeeze=False)
    for (row, start), (column, name) in product(enumerate(starts), enumerate(names)):
        panel = panels[row, column]
        here = (chosen["start"] == start) & (chosen["optimizer"] == name)
        draw_curves(panel, chosen[here], theme)
        panel.set_title(f"{name}, from norm {start:.2g}")
    for panel in panels[-1]:
        panel.set_xlabel("step")
    for panel in panels[:, 0]:
        panel.set_ylabel(label)
    legend(canvas, theme, chosen["limit"], chosen["backend"], extra)
    return list(panels.ravel())


def _last(curves: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = curves[curves["step"] == curves["step"].max()]
    return rows
