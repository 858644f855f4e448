"""The table of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from harness.figures.axes import log_axis
from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme, marker
from harness.figures.tables import grouped
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, bootstrap, median, overlap, paired_effects
from harness.tasks.cells import backend_of, by_config
from harness.tasks.training_throughput.task import CONTROL

KEYS = ["workload", "precision", "backend", "device"]
"""The columns that name a row."""


def is_timed(record: Record) -> bool:
    """Whether a run has times; fp16 on a CPU has none."""
    return record.status == "ok" and "rate/bare" in record.summary


def rates(records: Sequence[Record]) -> pd.DataFrame:
    """Examples per second and ratios within runs; medians over seeds with intervals.

    ``ratio`` = wrapped / bare. ``control`` = a second bare step / bare, the difference
    of two equal steps. A row without times has NaN and 0 ``seeds``.
    """
    rows = []
    for group in by_config(records):
        first, timed = group[0], [record for record in group if is_timed(record)]
        row: dict[str, Any] = {
            "workload": first.config["workload"],
            "precision": first.config["precision"],
            "backend": backend_of(first),
            "device": first.subject.get("device_name", first.subject["device"]),
        }
        bare, wrapped, again = (
            [record.summary[f"rate/{name}"] for record in timed]
            for name in ("bare", "wrapped", CONTROL)
        )
        row |= _interval("bare", bare) | _interval("wrapped", wrapped)
        row |= _ratio("ratio", wrapped, bare) | _ratio("control", again, bare)
        rows.append({**row, "seeds": len(timed)})
    return pd.DataFrame(rows)


def _interval(name: str, values: Sequence[float]) -> dict[str, Any]:
    if not values:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"), np.nan)
    return bootstrap(median, values).named(name)


def _ratio(name: str, one: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    effects = paired_effects(one, other, "log ratio").tolist() if one else []
    return {key: float(np.exp(end)) for key, end in _interval(name, effects).items()}


APART = ("workload", "precision")
"""The settings that distinguish runs in the tables."""

SLACK = 0.1
"""The largest distance of intervals of ratios, because machines differ."""


def _over_bare(variant: str) -> Metric:
    """Return the metric of a variant's rate relative to the bare step's of the run."""

    def read(record: Record) -> float:
        if not is_timed(record):
            return 0.0 if record.status == "diverged" else np.nan
        return record.summary[f"rate/{variant}"] / record.summary["rate/bare"]

    return Metric(read, "ratio", "larger")


METRICS = {"ratio": _over_bare("wrapped"), "control": _over_bare(CONTROL)}
"""The metrics of a run, which are both comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the records."""
    table = rates(records)
    return Judgement(tables={"rates": table})


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare ratios, which agree between machines; absolute rates do not."""
    keys = ["workload", "precision", "backend"]
    columns = [*keys, *RATIO]
    both = published["rates"][columns].merge(
        own["rates"][columns], on=keys, suffixes=("_published", "_own")
    )
    both = both.dropna()
    agree = [
        overlap(_interval_of(row, "_published"), _interval_of(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


RATIO = ("ratio", "ratio_low", "ratio_high")


def _interval_of(row: pd.Series, whose: str = "") -> Interval:
    return Interval(*(np.asarray(row[f"{name}{whose}"]) for name in RATIO))


BESIDE = 0.2
"""The distance of the points of two backends; lines are 1 apart."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figure; nothing without times."""
    table = finding.tables["rates"]
    if (table["seeds"] > 0).any():
        yield ratios(finding, table[table["seeds"] > 0])


def ratios(finding: Finding, table: pd.DataFrame) -> Drawing:
    """Wrapped over bare, and the control; a line per workload and precision."""
    lines = [f"{w}, {p}" for (w, p), _ in grouped(table, "workload", "precision")]
    backends = list(dict.fromkeys(table["backend"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        axes.axvline(1, color=theme.ink, lw=1)
        for _, row in table.iterrows():
            shift = BESIDE * (backends.index(row["backend"]) - (len(backends) - 1) / 2)
            place = lines.index(f"{row['workload']}, {row['precision']}") + shift
            _paint(axes, row, place, backends, theme)
        axes.set_yticks(range(len(lines)), lines)
        axes.set_ylim(len(lines) - 0.4, -0.6)
        log_axis(axes, "x")
        axes.set_xlabel("examples a second, over those of the bare step")
        axes.grid(visible=False, axis="y")
        canvas.legend(
            handles=_handles(backends, theme),
            loc="outside lower center",
            ncols=len(backends) + 1,
        )

    worst = table.sort_values("ratio", kind="stable").iloc[0]
    share = (
        f"{worst['ratio']:.0%} of the bare rate on {worst['workload']}, "
        f"{worst['precision']} ({worst['backend']})"
    )
    return Drawing(
        "ratios",
        f"At worst a wrapped step keeps {share}",
        alt="Examples a second of wrapped steps over those of bare ones, for each "
        f"workload, precision and backend. {finding.answer}",
        caption="Median over seeds with its 95% interval. Grey lines are the control: "
        "a bare step against a bare step.",
        data=table,
        size=(WIDTH, 1.3 + 0.5 * len(lines)),
        paint=paint,
    )


def _paint(
    axes: Axes, row: pd.Series, place: float, backends: list[str], theme: Theme
) -> None:
    control = [row["control_low"], row["control_high"]]
    axes.plot(control, [place] * 2, color=theme.faint, lw=4, alpha=0.5)
    color = theme.backends[row["backend"].split(" ")[0]]
    axes.plot([row["ratio_low"], row["ratio_high"]], [place] * 2, color=color)
    axes.plot(row["ratio"], place, **marker(row["backend"], backends, color))


def _handles(backends: list[str], theme: Theme) -> list[Line2D]:
    named = [
        Line2D(
            [],
            [],
            label=backend,
            **marker(backend, backends, theme.backends[backend.split(" ")[0]]),
        )
        for backend in backends
    ]
    label = "bare against bare"
    control = Line2D([], [], label=label, color=theme.faint, lw=4, alpha=0.5)
    return [*named, control]
