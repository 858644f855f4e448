"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import (
    Floats,
    Interval,
    bootstrap,
    median,
    overlap,
    paired_effects,
)
from harness.tasks.cells import SeedCell, backend_of, by_config, same_seeds
from harness.tasks.checks import Check, Holds, all_hold, both
from harness.tasks.deep_digits import laws
from harness.tasks.deep_digits.laws import FLUSHED, LARGEST, SUBNORMAL
from harness.tasks.deep_digits.task import Settings

KINDS = ("weights", "activations")
"""The kinds of counted gradients."""

LARGEST_SCALE = 45
"""log2 of the largest scale whose flushed share is computed."""


@dataclass(frozen=True)
class Cell(SeedCell[Settings]):
    """The runs that differ only in their seed, on one backend and device."""

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        return {"method": self.settings.label, "backend": self.backend}


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [
        Cell(backend_of(group[0]), Settings(**group[0].config), group)
        for group in by_config(records)
    ]


def losses(of: Sequence[Cell]) -> pd.DataFrame:
    """The final held-out loss and accuracy, medians over the seeds with intervals.

    ``ratio`` = loss / loss of float32 without a scale on the same backend, paired by
    seed, median with its interval; NaN without such a run.
    """
    rows = []
    for cell in of:
        loss = cell.column("loss")[:, -1]
        accuracy = np.nan_to_num(cell.last("accuracy"), nan=0.0)
        rows.append(
            {
                **cell.labels,
                "dtype": cell.settings.dtype,
                "scale": cell.settings.scale,
                **_interval("loss", loss),
                **_interval("accuracy", accuracy),
                **_over_float32(cell, of),
                "seeds": len(cell.records),
            }
        )
    return pd.DataFrame(rows)


def _over_float32(cell: Cell, of: Sequence[Cell]) -> dict[str, Any]:
    for base in of:
        plain = base.settings.dtype == "float32" and base.settings.scale == "none"
        if plain and base.backend == cell.backend:
            for mine, other in same_seeds(cell, base):
                ends, others = (each.column("loss")[:, -1] for each in (mine, other))
                effects = paired_effects(ends, others, "log ratio")
                interval = _interval("ratio", effects)
                return {name: np.exp(value) for name, value in interval.items()}
    return dict.fromkeys(("ratio", "ratio_low", "ratio_high"), np.nan)


def scales(of: Sequence[Cell]) -> pd.DataFrame:
    """The values of each scale, medians over the seeds.

    ``mean_log2`` is over all steps; ``before`` and ``lowest`` are the scale's log2
    around the injected overflow. ``recovery`` is in steps, infinite if not within the
    run; ``unrecovered`` counts such runs. ``skipped`` counts steps. ``zero_KIND`` is
    the share of zero gradients over all checkpoints. ``moves`` is whether the scale is
    dynamic. ``pinned`` counts runs with the scale at 1 already before the overflow,
    and ``nan`` runs with a final scale of NaN.
    """
    rows = []
    for cell in of:
        recovery = np.nan_to_num(cell.last("recovery"), nan=np.inf)
        moves = cell.settings.scale not in ("none", "fixed")
        pinned = moves & (cell.last("before") == 1)
        rows.append(
            {
                **cell.labels,
                **_interval("mean_log2", cell.last("mean_log2")),
                "before": np.median(_log2(cell.last("before"))),
                "lowest": np.median(_log2(cell.last("lowest"))),
                "moves": moves,
                "recovery": np.median(recovery),
                "unrecovered": int(np.isinf(recovery).sum()),
                "skipped": np.median(cell.last("skipped")),
                **{f"zero_{k}": _share(cell.series(f"zero/{k}")) for k in KINDS},
                "runs": len(cell.records),
                "pinned": int(pinned.sum()),
                "nan": int(np.isnan(cell.last("scale")).sum()),
            }
        )
    return pd.DataFrame(rows)


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out loss and log2 of the scale over the steps, medians with intervals."""
    frames = []
    for cell in of:
        columns = {
            "step": cell.settings.measured_at,
            **_interval("loss", cell.column("loss")),
            **_interval("scale_log2", _log2(cell.series("scale"))),
        }
        frames.append(pd.DataFrame({**cell.labels, **columns}))
    return pd.concat(frames, ignore_index=True)


def histograms(of: Sequence[Cell]) -> pd.DataFrame:
    """The share of float32 gradients in each [2^e, 2^(e+1)), on the first backend."""
    frames = []
    for kind in KINDS:
        counted = _counted(of, kind)
        for exponents, _ in counted[:1]:
            counts = np.sum([c for _, c in counted], axis=0)
            columns = {"log2": exponents, "share": counts / counts.sum()}
            frames.append(pd.DataFrame({"gradients": kind, **columns}))
    return _stacked(frames, ["gradients", "log2", "share"])


def underflow(of: Sequence[Cell]) -> pd.DataFrame:
    """The share of float32 gradients that become 0 in float16 with a scale 2^k."""
    frames = []
    powers = np.arange(LARGEST_SCALE + 1)
    for kind in KINDS:
        shares = [
            [laws.flushed(exponents, counts, float(power)) for power in powers]
            for exponents, counts in _counted(of, kind)
        ]
        if shares:
            columns = {"scale_log2": powers, **_interval("flushed", shares)}
            frames.append(pd.DataFrame({"gradients": kind, **columns}))
    names = ["flushed", "flushed_low", "flushed_high"]
    return _stacked(frames, ["gradients", "scale_log2", *names])


def simulation(of: Sequence[Cell]) -> pd.DataFrame:
    """The effect of one infinity on each scaler in a simulation without training.

    Each scaler of the NumPy reference gets 22,000 gradients of one size, which is the
    largest power of two that the gradients of this net reach. Empty if no float32 run
    has counted them.
    """
    rows = []
    amax = [2.0 ** _highest(counted) for counted in _counted(of, "weights")]
    for cell in (cell for cell in of if amax and cell.backend == of[0].backend):
        settings = cell.settings
        if settings.scale in ("none", "fixed"):
            continue
        of_scaler = tuple(settings.arguments.items()), settings.strict
        effect = laws.recovery(settings.scale, *of_scaler, max(amax))
        row = {"method": settings.label, "amax": max(amax), **effect._asdict()}
        rows.append(row)
    columns = ["method", "amax", *laws.Recovery._fields]
    return pd.DataFrame(rows, columns=columns)


def _stacked(frames: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Concatenate frames; without frames, return an empty one with these columns."""
    if not frames:
        return pd.DataFrame(columns=list(columns))
    return pd.concat(frames, ignore_index=True)


def _counted(of: Sequence[Cell], kind: str) -> list[tuple[Floats, Floats]]:
    """Return the non-empty histograms of the float32 runs of the first backend."""
    cells_of = [cell for cell in of if cell.settings.dtype == "float32"]
    runs = [record for cell in cells_of[:1] for record in cell.records]
    counted = [laws.histogram(r.summary, kind) for r in runs if r.status == "ok"]
    return [(exponents, counts) for exponents, counts in counted if counts.sum()]


def _highest(counted: tuple[Floats, Floats]) -> float:
    exponents, counts = counted
    return float(exponents[counts > 0].max())


def _interval(name: str, samples: Any) -> dict[str, Any]:
    return bootstrap(median, samples).named(name)


def _log2(scales: Floats) -> Floats:
    """Return log2 of scales; NaN becomes the lowest, because it skips every step."""
    with np.errstate(divide="ignore"):
        logarithms = np.log2(scales)
    finite: Floats = np.nan_to_num(
        logarithms, nan=-np.inf, posinf=np.inf, neginf=-np.inf
    )
    return finite


def _share(column: Floats) -> float:
    finite = column[np.isfinite(column)]
    return float(np.mean(finite)) if finite.size else np.nan


APART = ("method.label",)
"""The settings that distinguish runs in the tables."""

METRICS = {
    "loss": Metric(
        lambda r: r.series["loss"][-1] if r.status == "ok" else np.inf,
        "nats",
        "smaller",
    ),
}
"""The metrics by which runs are compared: the held-out loss at the end."""

SLACK = 0.05
"""The largest distance of intervals of a loss, because few seeds make them narrow."""

USUAL_WINDOW = 2000
"""The default steps between two increases of a scale, of dynamic and Backoff."""

PINNED = (9_000, 13_000)
"""Updates for which one infinity pins the original's LogMax: about 11,000."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check them."""
    found = cells(records)
    frames = {
        "losses": losses(found),
        "scales": scales(found),
        "simulation": simulation(found),
        "underflow": underflow(found),
        "histogram": histograms(found),
        "curves": curves(found),
    }
    settings = {cell.settings.label: cell.settings for cell in found}
    return Judgement(tables=frames, checks=checks(frames, settings))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's losses with published ones of the same scale."""
    keys = ["method", "backend"]
    both = published["losses"].merge(
        own["losses"], on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_loss(row, "_published"), _loss(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    columns = [f"loss{part}_{whose}" for whose in ("published", "own") for part in ENDS]
    return both[[*keys, *columns]].assign(matches=agree)


ENDS = ("", "_low", "_high")


def _loss(row: pd.Series, suffix: str = "") -> Interval:
    return Interval(*(np.asarray(row[f"loss{part}{suffix}"]) for part in ENDS))


def checks(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    windows, scales = _windows(settings), frames["scales"]
    return [
        (
            "without a scale most gradients are 0 in float16, with one hardly any",
            _flushes(frames, settings, scaled_of(settings)),
        ),
        (
            "after one overflow dynamic and Backoff are back in a window of steps",
            all_hold(
                [
                    row["recovery"] <= windows[row["method"]]
                    for _, row in scales[scales["method"].isin(windows)].iterrows()
                ]
            ),
        ),
        (
            "in a simulation of the scaler alone, one infinity pins the original's "
            "LogMax at its minimum for about 11000 updates",
            all_hold([PINNED[0] < n < PINNED[1] for n in _pinned(frames, settings)]),
        ),
    ]


def floor_of(settings: Mapping[str, Settings]) -> str:
    """Return the first float16 method without a scale, or an empty text."""
    half = (m for m, each in settings.items() if each.dtype == "float16")
    return next((m for m in half if settings[m].scale == "none"), "")


def scaled_of(settings: Mapping[str, Settings]) -> list[str]:
    """Return the methods that should match float32: scaled float16 without quirks."""
    return [
        label
        for label, each in settings.items()
        if each.dtype == "float16" and each.scale != "none" and not each.strict
    ]


def _windows(settings: Mapping[str, Settings]) -> dict[str, int]:
    """Return the steps between two increases of the dynamic and Backoff scales."""
    names = {"dynamic": "increment_period", "Backoff": "step_window"}
    return {
        label: int(each.arguments.get(names[each.scale], USUAL_WINDOW))
        for label, each in settings.items()
        if each.scale in names and not each.strict
    }


def _flushes(
    frames: Mapping[str, pd.DataFrame],
    settings: Mapping[str, Settings],
    scaled: Sequence[str],
) -> Holds:
    """Whether over 50% are 0 by law and in runs, but under 5% with a scale."""
    underflow, scales = frames["underflow"], frames["scales"]
    by_law = underflow[underflow["scale_log2"] == 0]["flushed_low"]
    columns = ["zero_weights", "zero_activations"]
    without = scales[scales["method"] == floor_of(settings)][columns]
    others = scales[scales["method"].isin(scaled)][columns]
    return both(
        all_hold(by_law > 0.5), all_hold(without > 0.5), all_hold(others < 0.05)
    )


def _pinned(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[float]:
    """Return the updates for which one infinity pins each LogMax with the quirk."""
    pinned = _column(frames["simulation"], "pinned")
    return [
        pinned[label]
        for label, each in settings.items()
        if each.strict and each.scale == "LogMax" and label in pinned
    ]


def _column(table: pd.DataFrame, name: str) -> dict[str, float]:
    """Return method -> value of a column in the method's first row."""
    once = table.drop_duplicates("method")
    values = once[name].astype(float)
    return dict(zip(once["method"].astype(str), values, strict=True))


DASHES: Sequence[Any] = ("-", "-", (0, (1, 1)), "--", "-.", (0, (5, 1)), ":")

MANY = 1e3
"""The upper limit of the axis of recoveries, in steps."""

GRADIENT_KINDS = {"weights": "default", "activations": "none"}
"""The theme's colour of each kind of gradients."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    yield draw_losses(finding)
    if len(finding.tables["underflow"]):
        yield draw_underflow(finding)
    if len(_moving(finding)):
        yield trajectories(finding)
    yield ends(finding)


def draw_losses(finding: Finding) -> Drawing:
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


def draw_underflow(finding: Finding) -> Drawing:
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
        colour = theme.methods[GRADIENT_KINDS[kind]]
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
        colour = theme.methods[GRADIENT_KINDS[kind]]
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
