"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme
from harness.figures.tables import grouped
from harness.judgement.finding import Finding
from harness.tasks.mixed_precision_text.findings import (
    MARGIN,
    is_equal,
    plain_name,
    shown,
)

__all__ = ["drawings"]

LARGEST = 2.0
"""The largest ratio on the axis; larger ratios are drawn at the edge."""

DASHES = ("-", "--", "-.", ":")


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    if finding.tables["ends"]["ratio"].notna().any():
        yield ratios(finding)
        yield curves(finding)
    moving = finding.tables["scales"].query("moves")["method"]
    if moving.isin(finding.tables["ends"].query("masters")["method"]).any():
        yield scales(finding)


def ratios(finding: Finding) -> Drawing:
    """Final bits per byte relative to float32; a line per arm."""
    table = shown(finding.tables["ends"])

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        axes.axvspan(1 - MARGIN, 1 + MARGIN, color=theme.faint, alpha=0.25, lw=0)
        axes.axvline(1, color=theme.ink, lw=1)
        for place, (_, row) in enumerate(table.iterrows()):
            _paint_arm(axes, place, row, theme)
        axes.set_yticks(range(len(table)), table["method"])
        axes.set_ylim(len(table) - 0.4, -0.6)
        axes.margins(x=0.12)
        axes.set_xlabel("held-out bits a byte at the end, over those of float32")
        axes.grid(visible=False, axis="y")

    return Drawing(
        "ratios",
        _title(table),
        alt="Bits a byte at the end over those of float32, an arm a line. "
        f"{finding.answer}",
        caption="Median over seeds with its 95% interval. In the band, "
        f"{MARGIN:.0%} to both sides, arms count as equal to float32.",
        data=table,
        size=(WIDTH, 0.9 + 0.27 * len(table)),
        paint=paint,
    )


def _paint_arm(axes: Axes, place: int, row: pd.Series, theme: Theme) -> None:
    near = row["ratio_low"] >= 1 - MARGIN and row["ratio_high"] <= 1 + MARGIN
    color = theme.methods["default" if near else "none"]
    ends = np.clip(row[["ratio_low", "ratio_high"]].astype(float), 0, LARGEST)
    axes.plot(ends, [place] * 2, color=color, lw=2)
    middle = min(float(row["ratio"]), LARGEST)
    axes.plot(middle, place, "o" if near else "D", color=color, ms=5)
    if not near:
        finite = np.isfinite(row["ratio"])
        text = f"{row['bits']:.2f} bits" if finite else "diverged"
        look: Mapping[str, Any] = {"ha": "center", "va": "bottom", "size": 8}
        axes.text(middle, place - 0.2, text, **look)


def _title(table: pd.DataFrame) -> str:
    """Quote the arm that is farthest from float32."""
    half = table[~table["plain"] & table["ratio"].notna()]
    if not len(half):
        return "Held-out bits a byte at the end"
    gaps = [abs(float(ratio) - 1) for ratio in half["ratio"]]
    row = half.iloc[gaps.index(max(gaps))]
    if not np.isfinite(row["ratio"]):
        return f"{plain_name(row['method'])} diverges"
    if abs(row["ratio"] - 1) <= MARGIN:
        return f"In half precision all arms end within {MARGIN:.0%} of float32"
    apart = row["ratio"] - 1
    side = "above" if apart > 0 else "below"
    name = plain_name(row["method"])
    return f"{name} ends {abs(apart):.0%} {side} float32's bits a byte"


def curves(finding: Finding) -> Drawing:
    """Held-out bits over the steps: float32, arms that equal it, and the others."""
    ends = shown(finding.tables["ends"])
    table = finding.tables["curves"].merge(ends[["method", "rate", "backend"]])
    worst = float(table["bits"].replace(np.inf, np.nan).max())
    equal = set(ends[is_equal(ends) & ~ends["plain"]]["method"])
    plain = set(ends[ends["plain"]]["method"])
    apart = [m for m in ends["method"] if m not in equal | plain]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        named: dict[str, Any] = {"color": theme.methods["default"], "lw": 1}
        named["label"] = "equal to float32"
        styles = dict.fromkeys(equal, named)
        styles |= _styles(apart, theme)
        styles |= {m: {"color": theme.ink, "lw": 3, "alpha": 0.5} for m in plain}
        for (method,), rows in grouped(table, "method"):
            axes.plot(rows["step"], rows["bits"], **{"label": method, **styles[method]})
            if method not in equal:
                band = rows["bits_low"], rows["bits_high"]
                color = styles[method]["color"]
                axes.fill_between(rows["step"], *band, color=color, alpha=0.1, lw=0)
        axes.set_ylim(top=1.03 * worst)
        axes.set_xlabel("step")
        axes.set_ylabel("held-out bits a byte")
        _legend(canvas, axes)

    return Drawing(
        "curves",
        _title_of_curves(ends),
        alt=f"Held-out bits a byte over the steps, a line an arm. {finding.answer}",
        caption="Median over seeds, the 95% interval as a band. A guess at random "
        f"takes 8 bits. Blue: {len(equal)} arms in half precision that end within "
        f"{MARGIN:.0%} of float32.",
        data=table,
        size=(WIDTH, 3.6),
        paint=paint,
    )


def _title_of_curves(ends: pd.DataFrame) -> str:
    """Quote the number of arms that reach the target in every run."""
    whole = ends[ends["reached"] == ends["seeds"]]
    text = f"{len(whole)} of {len(ends)} arms reach the target in every run"
    if not len(whole):
        return text
    low, high = (f"{end(whole['to_target']):.0f}" for end in (min, max))
    return f"{text}, after {low if low == high else f'{low} to {high}'} steps (medians)"


def scales(finding: Finding) -> Drawing:
    """log2 of the loss scale over the steps; a panel per window, a line per arm."""
    best = shown(finding.tables["ends"])[["method", "rate", "backend"]]
    rows = finding.tables["scales"].merge(best)
    # The scale is the same with and without masters.
    with_masters = finding.tables["ends"].query("masters")["method"]
    moving = rows[rows["moves"] & rows["method"].isin(with_masters)]
    table = finding.tables["curves"].merge(moving[["method", "rate", "backend"]])

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        styles = _styles(list(moving["method"]), theme)
        for (method,), rows in grouped(table, "method"):
            look = {"drawstyle": "steps-post", "label": method, **styles[method]}
            axes.plot(rows["step"], rows["scale_log2"], **look)
        axes.set_xlabel("step")
        axes.set_ylabel("log2 of the loss scale")
        _legend(canvas, axes)

    return Drawing(
        "scales",
        _title_of_scales(moving),
        alt="log2 of the loss scale over the steps, a line an arm. Some steps have an "
        f"infinite gradient. {finding.answer}",
        caption=f"Median over seeds at checkpoints. {_injected(moving)} steps of every "
        "run have an infinite gradient, at equal distances.",
        data=table,
        size=(WIDTH, 3.8),
        paint=paint,
    )


def _injected(moving: pd.DataFrame) -> str:
    return f"{int(moving['injected'].iloc[0])}" if len(moving) else "Some"


def _title_of_scales(moving: pd.DataFrame) -> str:
    """Quote the lowest and the highest scale at the end."""
    ends = moving.sort_values("end", kind="stable")
    if not len(ends) or not np.isfinite(ends["end"]).all():
        return "The loss scale over the steps"
    low, high = ends.iloc[0], ends.iloc[-1]
    return (
        f"{plain_name(low['method'])} ends at a scale of 2^{low['end']:.0f}, "
        f"{plain_name(high['method'])} at 2^{high['end']:.0f}"
    )


def _styles(methods: list[str], theme: Theme) -> dict[str, dict[str, Any]]:
    """Return a colour of the theme and dashes for every arm, in a fixed order."""
    colors = (
        theme.methods["none"],
        theme.methods["default"],
        theme.methods["strict"],
        theme.backends["pytorch"],
        theme.backends["tf"],
        theme.backends["reference"],
        theme.ink,
    )
    looks = zip(methods, cycle(colors), cycle(DASHES), strict=False)
    return {name: {"color": color, "ls": dashes} for name, color, dashes in looks}


def _legend(canvas: Canvas, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    canvas.legend(once.values(), once.keys(), loc="outside lower center", ncols=3)
