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

from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme
from harness.figures.tables import first_backend, grouped
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
from harness.tasks.checks import Check, all_hold
from harness.tasks.mixed_precision_text.task import Settings

ARM = ["method", "rate", "backend"]
"""The columns that name a row of every table."""

RATIO = ("ratio", "ratio_low", "ratio_high")


@dataclass(frozen=True)
class Cell(SeedCell[Settings]):
    """The runs that differ only in their seed, on one backend and device."""

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        names = (self.settings.label, self.settings.rate, self.backend)
        return dict(zip(ARM, names, strict=True))

    @property
    def bits(self) -> Floats:
        """The final held-out bits per byte, [seeds]; infinite if a run diverged."""
        return self.column("bits")[:, -1]


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [
        Cell(backend_of(group[0]), Settings(**group[0].config), group)
        for group in by_config(records)
    ]


def ends(of: Sequence[Cell]) -> pd.DataFrame:
    """The final held-out bits per byte, medians over the seeds with intervals.

    ``ratio`` = bits / bits of float32 on the same backend at its best rate, paired by
    seed; NaN without such runs. ``to_target``: steps to the target, infinite if a run
    does not reach it. ``best``: whether the rate has the fewest bits of this method and
    backend.
    """
    best = _best(of)
    rows = []
    for cell in of:
        method, _, backend = cell.labels.values()
        to_target = np.nan_to_num(cell.last("to_target"), nan=np.inf)
        rows.append(
            {
                **cell.labels,
                "dtype": cell.settings.dtype,
                "scale": cell.settings.scale,
                "masters": cell.settings.masters,
                "strict": cell.settings.strict,
                "plain": cell.settings.is_plain,
                "best": cell is best[method, backend],
                **bootstrap(median, cell.bits).named("bits"),
                **_over_float32(cell, best),
                **bootstrap(median, to_target).named("to_target"),
                "reached": int(np.isfinite(to_target).sum()),
                "seeds": len(cell.records),
            }
        )
    return pd.DataFrame(rows)


def scales(of: Sequence[Cell]) -> pd.DataFrame:
    """The values of each scale as log2, medians over the seeds.

    ``mean`` over all steps, the ``lowest`` and the final (``end``) scale; the number of
    ``skipped`` steps, of which ``injected`` had an infinite gradient.
    """
    rows = []
    for cell in of:
        rows.append(
            {
                **cell.labels,
                "scale": cell.settings.scale,
                "moves": cell.settings.scale not in ("none", "fixed"),
                **bootstrap(median, cell.last("mean_log2")).named("mean"),
                "lowest": float(np.median(_log2(cell.last("lowest")))),
                "end": float(np.median(_log2(cell.last("scale")))),
                "injected": cell.settings.overflows,
                "skipped": float(np.median(cell.last("skipped"))),
            }
        )
    return pd.DataFrame(rows)


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out bits and log2 of the scale over the steps, medians with intervals."""
    frames = []
    for cell in of:
        columns = {
            "step": cell.settings.measured_at,
            **bootstrap(median, cell.column("bits")).named("bits"),
            **bootstrap(median, _log2(cell.series("scale"))).named("scale_log2"),
        }
        frames.append(pd.DataFrame({**cell.labels, **columns}))
    return pd.concat(frames, ignore_index=True)


def _best(of: Sequence[Cell]) -> Mapping[tuple[str, str], Cell]:
    """Return the cell with the fewest bits of each method and backend."""
    best: dict[tuple[str, str], Cell] = {}
    for cell in sorted(of, key=lambda cell: float(np.median(cell.bits))):
        best.setdefault((cell.settings.label, cell.backend), cell)
    return best


def _over_float32(
    cell: Cell, best: Mapping[tuple[str, str], Cell]
) -> Mapping[str, Any]:
    for base in best.values():
        if base.settings.is_plain and base.backend == cell.backend:
            for mine, other in same_seeds(cell, base):
                effects = paired_effects(mine.bits, other.bits, "log ratio")
                interval = bootstrap(median, effects).named("ratio")
                return {name: float(np.exp(end)) for name, end in interval.items()}
    return dict.fromkeys(RATIO, np.nan)


def _log2(values: Floats) -> Floats:
    """Return log2 of scales; NaN becomes the lowest, because it skips every step."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(
            np.log2(values), nan=-np.inf, posinf=np.inf, neginf=-np.inf
        )


APART = ("method.label", "rate")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "bits": Metric(
        lambda r: r.series["bits"][-1] if r.status == "ok" else np.inf,
        "bits a byte",
        "smaller",
    ),
    "steps to target": Metric(
        lambda r: float(np.nan_to_num(r.summary.get("to_target", np.inf), nan=np.inf)),
        "steps",
        "smaller",
    ),
}
"""The metrics by which runs are compared: final held-out bits, and steps to target."""

MARGIN = 0.01
"""An arm equals float32 if its interval is within this share of float32's bits."""

SLACK = 0.02
"""The largest distance of intervals of bits, because few seeds make them narrow."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check them."""
    found = cells(records)
    frames = {
        "ends": ends(found),
        "scales": scales(found),
        "curves": curves(found),
    }
    return Judgement(tables=frames, checks=checks(frames))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's bits with published ones of the same scale."""
    columns = [*ARM, *BITS]
    both = published["ends"][columns].merge(
        own["ends"][columns], on=ARM, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_bits(row, "_published"), _bits(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


BITS = ("bits", "bits_low", "bits_high")


def _bits(row: pd.Series, whose: str) -> Interval:
    return Interval(*(np.asarray(row[f"{name}{whose}"]) for name in BITS))


def shown(ends: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the first backend, each method at its best rate."""
    return first_backend(ends[ends["best"]])


def checks(frames: Mapping[str, pd.DataFrame]) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    scales = frames["scales"].dropna(subset=["skipped"])
    return [
        (
            "every arm skips the steps with an infinite gradient",
            all_hold(scales["skipped"] >= scales["injected"]),
        )
    ]


def is_equal(rows: pd.DataFrame) -> pd.Series:
    """Whether the interval of each ratio to float32 is within the margin."""
    return (rows["ratio_low"] >= 1 - MARGIN) & (rows["ratio_high"] <= 1 + MARGIN)


def plain_name(method: str) -> str:
    """Return the label of an arm without commas, for use in sentences."""
    return method.replace(", ", " ")


LARGEST = 2.0
"""The largest ratio on the axis; larger ratios are drawn at the edge."""

DASHES = ("-", "--", "-.", ":")


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    if finding.tables["ends"]["ratio"].notna().any():
        yield ratios(finding)
        yield draw_curves(finding)
    moving = finding.tables["scales"].query("moves")["method"]
    if moving.isin(finding.tables["ends"].query("masters")["method"]).any():
        yield draw_scales(finding)


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


def draw_curves(finding: Finding) -> Drawing:
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


def draw_scales(finding: Finding) -> Drawing:
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
