"""Tables and figures of the deep net, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.figures.marks import curves as curves_of
from harness.figures.marks import (
    dots,
    first_backend,
    log_axis,
    looks,
    percent,
    unique,
)
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Floats
from harness.tasks.cells import Cell, cells, interval, over_time, ratio_to
from harness.tasks.checks import all_hold
from harness.tasks.deep_digits.task import HIGHEST, LOWEST, Settings
from harness.tasks.loss_scales import Method


def loss(record: Record) -> float:
    """Return the held-out loss at the end."""
    return record.series["loss"][-1] if record.status == "ok" else np.inf


METRICS = {"loss": Metric(loss, "nats", "smaller")}
"""The metrics by which runs are compared."""

EXPONENTS = np.arange(LOWEST, HIGHEST + 1)

FLUSHED = -25
"""A number up to 2**-25, half of float16's smallest, becomes 0 in float16."""

POWERS = np.arange(46)
"""log2 of the scales whose flushed share is computed."""

WINDOWS = {"dynamic": "increment_period", "Backoff": "step_window"}
"""Scale -> the argument with the steps between two increases; the default is 2000."""


def judge(records: Sequence[Record]) -> Judgement:
    of = cells(records, Settings, lambda settings: {"method": settings.label})
    plain = {cell.backend: cell for cell in of if cell.settings.is_plain}
    scales = pd.DataFrame([scale_row(cell) for cell in of])
    frames = {
        "losses": pd.DataFrame([loss_row(cell, plain) for cell in of]),
        "scales": scales,
        "underflow": underflow(of),
        "curves": curves(of),
        "seconds": over_time(of, "loss", lambda cell: cell.column("loss")),
    }
    windows = {
        cell.settings.label: window
        for cell in of
        if (window := window_of(cell.settings.method))
    }
    moving = scales[scales["method"].isin(windows)]
    check = "after one overflow dynamic and Backoff are back in a window of steps"
    back = moving["recovery"] <= moving["method"].map(windows)
    return Judgement(frames, [(check, all_hold(back))])


def loss_row(cell: Cell, plain: Mapping[str, Cell]) -> dict[str, Any]:
    """Return the final held-out loss, the median over the seeds.

    ``ratio`` = loss / loss of float32 without a scale on the same backend, paired by
    seed; NaN without such a run.
    """
    return {
        **cell.labels,
        "dtype": cell.settings.dtype,
        "scale": cell.settings.scale,
        **interval("loss", cell.end("loss")),
        **ratio_to(plain.get(cell.backend), cell, "loss"),
        "seeds": len(cell.records),
    }


def scale_row(cell: Cell) -> dict[str, Any]:
    """Return the values of a scale, medians over the seeds.

    ``recovery`` from the injected overflow is in steps, infinite if not within the run.
    ``skipped`` counts steps. ``moves`` is whether the scale is dynamic. ``pinned``
    counts runs with the scale at 1 already before the overflow.
    """
    moves = cell.settings.scale not in ("none", "fixed")
    return {
        **cell.labels,
        "moves": moves,
        "recovery": np.median(np.nan_to_num(cell.last("recovery"), nan=np.inf)),
        "skipped": np.median(cell.last("skipped")),
        "runs": len(cell.records),
        "pinned": int((moves & (cell.last("before") == 1)).sum()),
    }


def window_of(method: Method) -> int:
    """Return the steps between two increases of a scale; 0 if it has no such window."""
    name = WINDOWS.get(method.get("scale", "none"), "")
    if not name or method.get("strict", False):
        return 0
    return int(method.get("arguments", {}).get(name, 2000))


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """log2 of the scale over the steps, medians with intervals.

    A scale of NaN counts as 0, because it skips every step.
    """
    frames = []
    for cell in of:
        with np.errstate(divide="ignore"):
            columns = interval("scale_log2", np.log2(cell.column("scale", 0.0)))
        steps = {"step": cell.settings.measured_at}
        frames.append(pd.DataFrame({**cell.labels, **steps, **columns}))
    return pd.concat(frames, ignore_index=True)


def underflow(of: Sequence[Cell]) -> pd.DataFrame:
    """The share of weights' gradients that become 0 in float16 with a scale 2^k.

    Of the float32 runs on the first backend, which count them.
    """
    plain = [cell for cell in of if cell.settings.dtype == "float32"][:1]
    runs = [r.summary for c in plain for r in c.records if r.status == "ok"]
    if not runs:
        return pd.DataFrame(columns=["scale_log2", "flushed"])
    shares = interval("flushed", [flushed(run, POWERS) for run in runs])
    return pd.DataFrame({"scale_log2": POWERS, **shares})


def flushed(summary: Mapping[str, float], powers: Any) -> Floats:
    """Return the share of counted gradients that become 0 with each scale 2**power."""
    counts = np.array([summary.get(f"weights/{each}", 0.0) for each in EXPONENTS])
    below = EXPONENTS + np.asarray(powers)[:, None] < FLUSHED
    return np.asarray(below @ counts / counts.sum())


def drawings(finding: Finding) -> Iterator[Drawing]:
    tables = finding.tables
    scales = first_backend(tables["scales"])
    moving = set(scales[scales["moves"]]["method"])
    yield draw_losses(tables["losses"])
    if len(tables["underflow"]):
        yield draw_underflow(tables["underflow"])
    if moving:
        curves = first_backend(tables["curves"])
        yield draw_scales(curves[curves["method"].isin(moving)])
    if len(tables["seconds"]):
        yield draw_seconds(first_backend(tables["seconds"]))


def draw_losses(table: pd.DataFrame) -> Drawing:
    """The final loss on every backend; a line per method."""
    plain = table[table["scale"] == "none"].drop_duplicates("dtype")
    ends = plain.set_index("dtype")["loss"]
    title = "Held-out loss at the end, by the dtype and the loss scale"
    if {"float16", "float32"} <= set(ends.index):
        title = (
            f"Without a loss scale float16 ends at a loss of {ends['float16']:.2f}, "
            f"float32 at {ends['float32']:.2f}"
        )
    return dots(
        "losses",
        title,
        table.assign(case=table["method"], hue="default"),
        "loss",
        "held-out loss at the end (nats)",
        hues={},
        alt="Held-out loss at the end for each method and backend.",
        caption="Median over seeds with its 95% interval.",
        data=table,
        axis=lambda panel: log_axis(panel, "x"),
    )


def draw_underflow(table: pd.DataFrame) -> Drawing:
    """The share of gradients that float16 flushes to 0, over the loss scale."""

    def axis(panel: Axes) -> None:
        panel.set(xlim=(0, 20), ylim=(0, 1))
        panel.yaxis.set_major_formatter(percent())

    share = table["flushed"].iloc[0]
    return curves_of(
        "underflow",
        f"Unscaled, float16 flushes {share:.0%} of this net's weight gradients to zero",
        table.assign(method="weights"),
        "scale_log2",
        "flushed",
        ("log2 of the loss scale", "share flushed to zero"),
        looks=lambda theme: {"weights": {"color": theme.methods["default"]}},
        alt="The share of gradients that a loss scale leaves at zero in float16.",
        caption="Gradients of the float32 runs at all checkpoints. A number up to "
        "2^-25 is zero in float16.",
        data=table,
        axis=axis,
    )


def draw_scales(table: pd.DataFrame) -> Drawing:
    """The loss scale over the steps with its interval; a line per method."""
    return curves_of(
        "scales",
        "How each loss scale moves, with one overflow in the middle",
        table,
        "step",
        "scale_log2",
        ("step", "log2 of the loss scale"),
        looks=lambda theme: looks(unique(table["method"]), theme),
        alt="The loss scale over the steps of a run with one overflow.",
        caption=f"Median over seeds on {table['backend'].iloc[0]}, the 95% interval as "
        "a band. In the middle of every run one step has an infinite loss.",
    )


def draw_seconds(table: pd.DataFrame) -> Drawing:
    """The held-out loss over the seconds of a run; a line per method."""
    ends = table.groupby("method", sort=False)["seconds"].max()
    title = (
        f"The held-out loss of {table['step'].max()} steps over the seconds of a run"
    )
    half = ends.drop("fp32", errors="ignore")
    if len(half) and "fp32" in ends:
        title = (
            f"On a CPU float16 takes {half.min() / ends['fp32']:.1f} times as long as "
            "float32, or longer"
        )
    return curves_of(
        "seconds",
        title,
        table,
        "seconds",
        "loss",
        ("seconds of a run", "held-out loss (nats)"),
        looks=lambda theme: looks(unique(table["method"]), theme),
        alt="Held-out loss over the seconds of a run for each method.",
        caption=f"Median over seeds on {table['backend'].iloc[0]}, the 95% interval as "
        "a band. Seconds are equal parts of the recorded duration of a run, which has "
        "its start and its measurements.",
        axis=lambda panel: log_axis(panel, "y"),
    )
