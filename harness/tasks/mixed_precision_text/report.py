"""The tables and figures of the transformer in half precision, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.figures.marks import curves as curves_of
from harness.figures.marks import dots, first_backend, looks, unique
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median, paired_effects
from harness.tasks.cells import Cell, cells, log2, same_seeds
from harness.tasks.checks import all_hold
from harness.tasks.mixed_precision_text.task import Settings

APART = ("method.label", "rate")
"""The settings that distinguish runs in the tables."""

ARM = ["method", "rate", "backend"]
"""The columns that name a row of every table."""

METRICS = {
    "bits": Metric(
        lambda r: r.series["bits"][-1] if r.status == "ok" else np.inf,
        "bits a byte",
        "smaller",
    ),
}
"""The metric by which runs are compared: the final held-out bits."""

MARGIN = 0.01
"""An arm equals float32 if its interval is within this share of float32's bits."""

LARGEST = 2.0
"""The largest ratio on the axis; larger ratios are drawn at the edge."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check them."""
    of = cells(records, Settings, lambda of: {"method": of.label, "rate": of.rate})
    tables = {"ends": ends(of), "scales": scales(of), "curves": curves(of)}
    skipped = tables["scales"].dropna(subset="skipped")
    check = "every arm skips the steps with an infinite gradient"
    holds = all_hold(skipped["skipped"] >= skipped["injected"])
    return Judgement(tables, [(check, holds)])


def _bits(cell: Cell) -> Floats:
    """Return the final held-out bits per byte, [seeds]; infinite if a run diverged."""
    return cell.column("bits")[:, -1]


def ends(of: Sequence[Cell]) -> pd.DataFrame:
    """The final held-out bits per byte, medians over the seeds with intervals.

    ``ratio`` = bits / bits of float32 on the same backend at its best rate, paired by
    seed; NaN without such runs. ``best``: whether the rate has the fewest bits of this
    method and backend.
    """
    best: dict[tuple[str, str], Cell] = {}
    for cell in sorted(of, key=lambda cell: float(np.median(_bits(cell)))):
        best.setdefault((cell.settings.label, cell.backend), cell)
    plain = {c.backend: c for c in best.values() if c.settings.is_plain}
    rows = []
    for cell in of:
        settings = cell.settings
        rows.append(
            {
                **cell.labels,
                "dtype": settings.dtype,
                "scale": settings.scale,
                "masters": settings.masters,
                "strict": settings.strict,
                "plain": settings.is_plain,
                "best": cell is best[settings.label, cell.backend],
                **bootstrap(median, _bits(cell)).named("bits"),
                **_over(cell, plain.get(cell.backend)),
                "seeds": len(cell.records),
            }
        )
    return pd.DataFrame(rows)


def _over(cell: Cell, base: Cell | None) -> dict[str, float]:
    """Return the ratio of bits, and its interval."""
    for mine, other in same_seeds(cell, base) if base else ():
        effects = paired_effects(_bits(mine), _bits(other), "log ratio")
        interval = bootstrap(median, effects).named("ratio")
        return {name: float(np.exp(end)) for name, end in interval.items()}
    return dict.fromkeys(("ratio", "ratio_low", "ratio_high"), np.nan)


def scales(of: Sequence[Cell]) -> pd.DataFrame:
    """The values of each scale as log2, medians over the seeds.

    ``mean`` over all steps, the ``lowest`` and the final (``end``) scale; the number of
    ``skipped`` steps, of which ``injected`` had an infinite gradient.
    """
    return pd.DataFrame(
        {
            **cell.labels,
            "scale": cell.settings.scale,
            "moves": cell.settings.scale not in ("none", "fixed"),
            **bootstrap(median, cell.last("mean_log2")).named("mean"),
            "lowest": float(np.median(log2(cell.last("lowest")))),
            "end": float(np.median(log2(cell.last("scale")))),
            "injected": cell.settings.overflows,
            "skipped": float(np.median(cell.last("skipped"))),
        }
        for cell in of
    )


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out bits and log2 of the scale over the steps, medians with intervals."""
    frames = [
        pd.DataFrame(
            {
                **cell.labels,
                "step": cell.settings.measured_at,
                **bootstrap(median, cell.column("bits")).named("bits"),
                **bootstrap(median, log2(cell.series("scale"))).named("scale_log2"),
            }
        )
        for cell in of
    ]
    return pd.concat(frames, ignore_index=True)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures of the first backend, each arm at its best rate."""
    ends = finding.tables["ends"]
    arms = first_backend(ends[ends["best"]])
    if arms["ratio"].notna().any():
        yield ratios(finding, arms)
    # The scale is the same with and without masters.
    moving = arms[arms["masters"] & ~arms["scale"].isin(["none", "fixed"])]
    if len(moving):
        yield over_time(finding, finding.tables["curves"].merge(moving[ARM]))


def ratios(finding: Finding, arms: pd.DataFrame) -> Drawing:
    """Final bits per byte relative to float32; a line per arm."""
    near = (arms["ratio_low"] >= 1 - MARGIN) & (arms["ratio_high"] <= 1 + MARGIN)
    half = near[~arms["plain"]]
    hues = near.map({True: "default", False: "none"})
    largest = min(LARGEST, 1.01 * arms["ratio"].max())

    def axis(panel: Axes) -> None:
        panel.axvspan(1 - MARGIN, 1 + MARGIN, color="gray", alpha=0.2, lw=0)
        panel.set_xlim(right=largest)

    return dots(
        "ratios",
        f"{half.sum()} of {len(half)} arms in half precision end within {MARGIN:.0%} "
        "of float32",
        arms.assign(case=arms["method"], hue=hues),
        "ratio",
        "held-out bits a byte at the end,\nover those of float32",
        hues={"default": "as float32", "none": "not shown to be"},
        alt="Bits a byte at the end over those of float32, an arm a line. "
        f"{finding.answer}",
        caption="Median over seeds with its 95% interval. In the band, "
        f"{MARGIN:.0%} to both sides, arms count as equal to float32.",
        data=arms,
        level=1,
        axis=axis,
    )


def over_time(finding: Finding, table: pd.DataFrame) -> Drawing:
    """log2 of the loss scale over the steps; a line per arm."""
    last = table[table["step"] == table["step"].max()].sort_values("scale_log2")
    low, high = last.iloc[0], last.iloc[-1]
    return curves_of(
        "scales",
        f"The loss scale ends at 2^{low['scale_log2']:.0f} ({low['method']}) to "
        f"2^{high['scale_log2']:.0f} ({high['method']})",
        table,
        "step",
        "scale_log2",
        ("step", "log2 of the loss scale"),
        looks=lambda theme: looks(unique(table["method"]), theme),
        alt=f"log2 of the loss scale over the steps, a line an arm. {finding.answer}",
        caption="Median over seeds at checkpoints. Some steps of every run have an "
        "infinite gradient, at equal distances.",
    )
