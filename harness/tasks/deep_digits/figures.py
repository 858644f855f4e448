"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.axes import log_axis, percent
from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme, marker
from harness.figures.tables import grouped
from harness.judgement.finding import Finding
from harness.tasks.deep_digits.laws import FLUSHED, LARGEST, SUBNORMAL

__all__ = ["drawings"]

DASHES: Sequence[Any] = ("-", "-", (0, (1, 1)), "--", "-.", (0, (5, 1)), ":")

MANY = 1e3
"""The upper limit of the axis of recoveries, in steps."""

KINDS = {"weights": "default", "activations": "none"}
"""The theme's colour of each kind of gradients."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield losses(finding)
    if len(finding.tables["underflow"]):
        yield underflow(finding)
    if len(_moving(finding)):
        yield trajectories(finding)
    yield ends(finding)


def losses(finding: Finding) -> Drawing:
    """The held-out loss over the steps with its interval; a line per method."""
    table = finding.tables["curves"]
    backend = table["backend"].iloc[0]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        for style, rows in _lines(table, backend, theme):
            band = rows["loss_low"], rows["loss_high"]
            axes.fill_between(rows["step"], *band, color=style["color"], alpha=0.15)
            axes.plot(rows["step"], rows["loss"], **style)
        log_axis(axes, "y")
        axes.set_xlabel("step")
        axes.set_ylabel("held-out loss (nats)")
        _legend(canvas, axes)

    return Drawing(
        "losses",
        _ending(finding.tables["losses"]),
        alt=f"Held-out loss over the steps for each method. {finding.answer}",
        caption=f"Median over seeds on {backend}, the 95% interval as a band. In the "
        "middle of every run one step has an infinite loss.",
        data=table,
        size=(WIDTH, 3.8),
        paint=paint,
    )


def underflow(finding: Finding) -> Drawing:
    """The histogram of float32 gradients, and the share that float16 flushes to 0."""
    histogram, curve = finding.tables["histogram"], finding.tables["underflow"]
    at_one = curve[(curve["scale_log2"] == 0) & (curve["gradients"] == "weights")]

    def paint(canvas: Canvas, theme: Theme) -> None:
        left, right = canvas.subplots(1, 2)
        _paint_histogram(left, histogram, theme)
        _paint_flushed(right, curve, theme)
        for axes in (left, right):
            axes.yaxis.set_major_formatter(percent())
            axes.legend()

    return Drawing(
        "underflow",
        f"Unscaled, float16 flushes {at_one['flushed'].iloc[0]:.0%} of this net's "
        "weight gradients to zero",
        alt="A histogram of the magnitudes of float32 gradients against the limits of "
        "float16, and the share that a loss scale leaves at zero.",
        caption="Gradients of the float32 runs at all checkpoints. Left of the first "
        "line float16 has 0, left of the second fewer bits, right of the third "
        "infinity. A scale of 2^k moves the histogram k to the right.",
        data=curve,
        size=(WIDTH, 3.4),
        paint=paint,
    )


def _paint_histogram(axes: Axes, table: pd.DataFrame, theme: Theme) -> None:
    for (kind,), rows in grouped(table, "gradients"):
        edges = [*rows["log2"], rows["log2"].iloc[-1] + 1]
        filled = kind == "activations"
        look: dict[str, Any] = {
            "fill": filled,
            "alpha": 0.55 if filled else 1,
            "lw": 1.6,
        }
        colour = theme.methods[KINDS[kind]]
        axes.stairs(rows["share"], edges, color=colour, label=kind, **look)
    axes.set_xlim(-45, LARGEST + 2)
    for place, name in ((FLUSHED, "0"), (SUBNORMAL, "subnormal"), (LARGEST, "inf")):
        axes.axvline(place, color=theme.ink, lw=1, ls=":")
        label: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "top", "size": 8}
        transform = axes.get_xaxis_transform()
        axes.text(place - 0.4, 0.98, name, transform=transform, **label)
    axes.set_xlabel("log2 of the magnitude of a gradient")
    axes.set_ylabel("share of gradients")


def _paint_flushed(axes: Axes, table: pd.DataFrame, theme: Theme) -> None:
    for (kind,), rows in grouped(table, "gradients"):
        colour = theme.methods[KINDS[kind]]
        dashes = "-" if kind == "weights" else "--"
        band = rows["flushed_low"], rows["flushed_high"]
        axes.fill_between(rows["scale_log2"], *band, color=colour, alpha=0.2)
        axes.plot(rows["scale_log2"], rows["flushed"], dashes, color=colour, label=kind)
    axes.set_xlim(0, 20)
    axes.set_ylim(0, 1)
    axes.set_xlabel("log2 of the loss scale")
    axes.set_ylabel("share flushed to zero")


def trajectories(finding: Finding) -> Drawing:
    """Scales over a run, and the steps until each scale recovered."""
    table, recovered = finding.tables["curves"], _moving(finding)
    backend = table["backend"].iloc[0]
    moving = set(recovered["method"])

    def paint(canvas: Canvas, theme: Theme) -> None:
        left, right = canvas.subplots(1, 2, width_ratios=(3, 2))
        for style, rows in _lines(table, backend, theme):
            if style["label"] in moving:
                band = rows["scale_log2_low"], rows["scale_log2_high"]
                look = {"color": style["color"], "alpha": 0.15}
                left.fill_between(rows["step"], *band, **look)
                left.plot(rows["step"], rows["scale_log2"], **style)
        left.set_xlabel("step")
        left.set_ylabel("log2 of the loss scale")
        colours = _colours(list(dict.fromkeys(table["method"])), theme)
        _paint_recovery(right, recovered, colours)
        _legend(canvas, left)

    return Drawing(
        "scales",
        "How long each loss scale takes to recover from one overflow",
        alt="The loss scale over the steps of a run with one overflow, and how many "
        f"steps each scaler takes to recover. {finding.answer}",
        caption=f"First: log2 of the scale, median over seeds on {backend}, the 95% "
        "interval as a band; the overflow is in the middle. Second: steps in these "
        "runs until the scale was above half of what it had been, median over seeds.",
        data=recovered,
        size=(WIDTH, 3.8),
        paint=paint,
    )


def _moving(finding: Finding) -> pd.DataFrame:
    """Return the rows of dynamic scales on the first backend."""
    table = finding.tables["scales"]
    rows: pd.DataFrame = table[
        table["moves"] & (table["backend"] == table["backend"].iloc[0])
    ]
    return rows


def _paint_recovery(
    axes: Axes, recovered: pd.DataFrame, colours: Mapping[str, str]
) -> None:
    names = [name.removeprefix("fp16, ") for name in recovered["method"]]
    for place, (_, row) in enumerate(recovered.iterrows()):
        steps, colour = float(row["recovery"]), colours[str(row["method"])]
        text = f"{steps:.0f}" if np.isfinite(steps) else "not in the run"
        if row["pinned"] > row["runs"] / 2:
            text = "at its minimum before"
        end = max(steps, 1.0) if np.isfinite(steps) else MANY
        axes.plot([1, end], [place] * 2, color=colour, lw=2.4)
        axes.plot(end, place, "o", color=colour, ms=5)
        side = "center" if end > 1 else "left"
        axes.text(end, place - 0.12, text, ha=side, size=8)
    axes.set_xscale("log")
    axes.set_xlim(1, MANY)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("steps to recover from one overflow")
    axes.grid(visible=False, axis="y")


def ends(finding: Finding) -> Drawing:
    """The final loss on every backend; a line per method."""
    table = finding.tables["losses"]
    names = list(dict.fromkeys(table["method"]))
    backends = list(dict.fromkeys(table["backend"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        colours = _colours(names, theme)
        for _, row in table.iterrows():
            colour = colours[row["method"]]
            place = (
                names.index(row["method"]) + 0.2 * backends.index(row["backend"]) - 0.1
            )
            band = [row["loss_low"], row["loss_high"]]
            axes.plot(band, [place] * 2, color=colour, lw=1.4)
            axes.plot(row["loss"], place, **marker(row["backend"], backends, colour))
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        log_axis(axes, "x")
        axes.set_xlabel("held-out loss at the end (nats)")
        axes.grid(visible=False, axis="y")
        handles = [
            Line2D([], [], label=backend, **marker(backend, backends, theme.ink))
            for backend in backends
        ]
        canvas.legend(handles=handles, loc="outside lower center", ncols=len(backends))

    return Drawing(
        "ends",
        _title(table),
        alt=f"Held-out loss at the end for each method and backend. {finding.answer}",
        caption="Median over seeds with its 95% interval.",
        data=table,
        size=(WIDTH, 3.4),
        paint=paint,
    )


def _ending(table: pd.DataFrame) -> str:
    """Quote the first backend's final losses of float32 and of unscaled float16."""
    plain = table[table["scale"] == "none"].drop_duplicates("dtype")
    ends = dict(zip(plain["dtype"], plain["loss"].astype(float), strict=True))
    if not {"float16", "float32"} <= ends.keys():
        return "Held-out loss over the steps, by the dtype and the loss scale"
    return (
        f"Without a loss scale float16 ends at a loss of {ends['float16']:.2f}, "
        f"float32 at {ends['float32']:.2f}"
    )


def _title(table: pd.DataFrame) -> str:
    """Quote the final losses of the methods in ascending order."""
    ends = sorted((loss, method) for method, loss in _first_losses(table).items())
    (low, best), (high, worst) = ends[0], ends[-1]
    text = f"Held-out losses end between {low:.3f} ({best})"
    return f"{text} and {high:.3f} ({worst})" if len(ends) > 1 else f"{best}: {low:.3f}"


def _first_losses(table: pd.DataFrame) -> dict[str, float]:
    rows = table[table["backend"] == table["backend"].iloc[0]]
    return dict(zip(rows["method"], rows["loss"].astype(float), strict=True))


def _lines(
    table: pd.DataFrame, backend: str, theme: Theme
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the style and the rows of each method on one backend."""
    of = table[table["backend"] == backend]
    names = list(dict.fromkeys(of["method"]))
    colours = _colours(names, theme)
    for name, dashes in zip(names, cycle(DASHES), strict=False):
        style = {"color": colours[name], "ls": dashes, "label": name, "lw": 1.6}
        yield style, of[of["method"] == name]


def _colours(names: Sequence[str], theme: Theme) -> Mapping[str, str]:
    """Return a colour of the theme for every method, in a fixed order."""
    palette = (
        theme.ink,
        theme.methods["none"],
        theme.backends["reference"],
        theme.methods["default"],
        theme.backends["pytorch"],
        theme.backends["tf"],
        theme.methods["strict"],
    )
    return dict(zip(names, cycle(palette), strict=False))


def _legend(canvas: Canvas, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=4)
