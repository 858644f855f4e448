"""The figures of the experiment, drawn from a finding's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme
from harness.figures.tables import first_backend, grouped
from harness.judgement.finding import Finding, joined
from harness.tasks.warm_up.findings import warm_up_changes

__all__ = ["drawings"]


APART = 0.04
"""The distance of the points of two optimizers; two warm-ups are 1 apart."""

BESIDE: Mapping[str, Any] = {"xytext": (8, 0), "textcoords": "offset points"}


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    ends = finding.tables["ends"]
    table = first_backend(ends[ends["best"]])
    yield losses(finding, table[np.isfinite(table["bits"])])
    yield state(finding, table[table["ratio"].notna()].drop_duplicates("optimizer"))


def losses(finding: Finding, table: pd.DataFrame) -> Drawing:
    """Final loss over warm-up; a line per optimizer."""

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        shares = sorted(set(table["warm_up"]))
        names = list(dict.fromkeys(table["optimizer"]))
        for (name,), rows in grouped(table.sort_values("warm_up"), "optimizer"):
            look = _look(name, theme)
            shift = APART * (names.index(name) - (len(names) - 1) / 2)
            x = [shares.index(share) + shift for share in rows["warm_up"]]
            # An interval may be infinite, if it includes runs that diverged.
            high = rows["bits_high"].clip(upper=rows["bits"].max() + 1)
            axes.vlines(x, rows["bits_low"], high, color=look["color"])
            axes.plot(x, rows["bits"], ms=4.5, **look)
            end = (len(shares) - 1 + APART * len(names) / 2, rows["bits"].iloc[-1])
            axes.annotate(name, end, va="center", color=look["color"], **BESIDE)
        axes.set_xticks(range(len(shares)), [f"{share:.0%}" for share in shares])
        axes.set_xlim(-0.2, len(shares) - 0.7)
        axes.set_xlabel("warm-up (share of the steps)")
        axes.set_ylabel("held-out loss (bits a byte)")

    return Drawing(
        "losses",
        _title(table),
        alt="Held-out loss of a byte transformer at the end of training over the share "
        f"of steps with warm-up, a line an optimizer. {finding.answer}",
        caption="Each optimizer at its best learning rate with this warm-up. "
        "Medians over seeds with 95% intervals; lower is better.",
        data=table,
        size=(WIDTH, 3.4),
        paint=paint,
    )


def _title(table: pd.DataFrame) -> str:
    """Quote the change of each optimizer's loss by its best warm-up."""
    changes = warm_up_changes(table).items()
    parts = [f"{change:+.2f} ({name})" for name, change in changes]
    if not parts:
        return "Loss at the end over warm-up"
    return f"Warm-up changes the loss by {joined(parts)} bits a byte"


def _look(name: str, theme: Theme) -> dict[str, Any]:
    return {
        "NovoGrad": {"color": theme.methods["default"], "marker": "o"},
        "AdamW": {"color": theme.methods["none"], "marker": "s", "ls": "--"},
        "SGD": {"color": theme.methods["strict"], "marker": "^", "ls": ":"},
    }[name]


def state(finding: Finding, table: pd.DataFrame) -> Drawing:
    """Bytes of state per byte of weights; a bar per optimizer."""

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        colors = [_look(name, theme)["color"] for name in table["optimizer"]]
        bars = axes.barh(table["optimizer"], table["ratio"], color=colors, height=0.55)
        texts = [f"{size:,.0f} bytes" for size in table["state"]]
        axes.bar_label(bars, texts, padding=4, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("bytes of optimizer state a byte of weights")

    parts = [f"{row['ratio']:.2f} ({row['optimizer']})" for _, row in table.iterrows()]
    return Drawing(
        "state",
        f"Bytes of state a byte of weights: {joined(parts)}",
        alt=f"Bytes that the optimizer's state takes. {finding.answer}",
        caption="All tensors of the state at the end of training, measured.",
        data=table,
        size=(WIDTH, 0.9 + 0.4 * max(len(table), 1)),
        paint=paint,
    )
