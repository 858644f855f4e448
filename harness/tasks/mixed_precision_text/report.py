"""The tables and figures of the transformer in half precision, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from harness.figures.marks import dots, first_backend
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import Cell, cells, ratio_to
from harness.tasks.checks import all_hold
from harness.tasks.mixed_precision_text.task import Settings

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
    of = cells(records, Settings, lambda of: {"method": of.label, "rate": of.rate})
    check = "every arm skips the steps with an infinite gradient"
    rows = [(np.median(c.last("skipped")), c.settings.overflows) for c in of]
    skipped = [count >= least for count, least in rows if not np.isnan(count)]
    return Judgement({"ends": ends(of)}, [(check, all_hold(skipped))])


def ends(of: Sequence[Cell]) -> pd.DataFrame:
    """The final held-out bits per byte, medians over the seeds with intervals.

    ``ratio`` = bits / bits of float32 on the same backend at its best rate, paired by
    seed; NaN without such runs. ``best``: whether the rate has the fewest bits of this
    method and backend.
    """
    best: dict[tuple[str, str], Cell] = {}
    for cell in sorted(of, key=lambda cell: float(np.median(cell.end("bits")))):
        best.setdefault((cell.settings.label, cell.backend), cell)
    plain = {c.backend: c for c in best.values() if c.settings.is_plain}
    rows = [
        {
            **cell.labels,
            "plain": cell.settings.is_plain,
            "best": cell is best[cell.settings.label, cell.backend],
            **bootstrap(median, cell.end("bits")).named("bits"),
            **ratio_to(plain.get(cell.backend), cell, "bits"),
            "seeds": len(cell.records),
        }
        for cell in of
    ]
    return pd.DataFrame(rows)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures of the first backend, each arm at its best rate."""
    ends = finding.tables["ends"]
    arms = first_backend(ends[ends["best"]])
    if arms["ratio"].notna().any():
        yield ratios(finding, arms)


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
