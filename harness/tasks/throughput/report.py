"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.plot import Drawing
from harness.figures.style import WIDTH, Theme
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, bootstrap, median, overlap
from harness.tasks.cells import on_gpus

SPEEDUP = ("speedup", "speedup_low", "speedup_high")


def rates(records: Sequence[Record]) -> pd.DataFrame:
    """Examples per second of each mode, also relative to fp32, by device and net.

    Medians over the seeds with intervals; ``speedup`` pairs the runs of each seed.
    """
    groups: dict[tuple[str, str, str], dict[int, float]] = {}
    for record in records:
        config = record.config
        size = f"{config['depth']} x {config['width']}, batch {config['batch']}"
        name = record.subject.get("device_name", record.subject["device"])
        key = name, size, config["mode"]
        groups.setdefault(key, {})[record.seed] = record.summary["rate"]
    rows = []
    for (name, size, mode), values in groups.items():
        base = groups.get((name, size, "fp32"), {})
        seeds = sorted(set(values) & set(base))
        row: dict[str, Any] = {"mode": mode, "device": name, "net": size}
        row |= bootstrap(median, list(values.values())).named("rate")
        row |= dict.fromkeys(SPEEDUP, np.nan)
        if seeds:
            pairs = [values[seed] / base[seed] for seed in seeds]
            row |= bootstrap(median, pairs).named("speedup")
        rows.append({**row, "seeds": len(values)})
    return pd.DataFrame(rows)


def first_net(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the device and net in the first row."""
    first = table.iloc[0]
    same = (table["device"] == first["device"]) & (table["net"] == first["net"])
    rows: pd.DataFrame = table[same]
    return rows


APART = ("mode", "depth", "width", "batch")
"""The settings that distinguish runs in the tables."""

SLACK = 0.1
"""The largest distance of intervals of rates, because clocks and cooling differ."""

NOTHING = "Not measured yet on a GPU; runs on a CPU are not counted."


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the runs on GPUs, or say that there are none."""
    usable = on_gpus(records)
    if not usable:
        return Judgement(note=NOTHING)
    table = rates(usable)
    return Judgement(tables={"rates": table})


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare rates on the same kind of device; the table may be empty."""
    keys = ["mode", "device", "net"]
    empty = pd.DataFrame(columns=[*keys, "rate", "rate_low", "rate_high"])
    both = published.get("rates", empty).merge(
        own.get("rates", empty), on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_rate(row, "published"), _rate(row, "own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


def _on_gpu(record: Record) -> float:
    """Return the rate of a run on a GPU; NaN for other runs, which are not judged."""
    return record.summary["rate"] if on_gpus([record]) else np.nan


METRICS = {"rate": Metric(_on_gpu, "examples a second", "larger")}
"""The metrics by which runs are compared."""


def _rate(row: pd.Series, whose: str) -> Interval:
    return Interval(
        *(row[f"{name}_{whose}"] for name in ("rate", "rate_low", "rate_high"))
    )


PEERS = ("fp32", "tf32", "GradScaler fp16", "autocast bf16")
"""The modes without any part of ours."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figure; nothing without runs of fp32 on a GPU."""
    if "rates" in finding.tables and finding.tables["rates"]["speedup"].notna().any():
        yield rates_figure(finding)


def rates_figure(finding: Finding) -> Drawing:
    """Examples per second relative to float32; a bar per mode."""
    measured = finding.tables["rates"].dropna(subset=["speedup"])
    table = first_net(measured)
    best = table.sort_values("speedup").iloc[-1]
    tf32 = table[table["mode"] == "tf32"]["speedup"]
    base, over = ("TF32", tf32.iloc[0]) if len(tf32) else ("float32", 1.0)

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        places = range(len(table))
        colours = [
            theme.faint if mode in PEERS else theme.methods["default"]
            for mode in table["mode"]
        ]
        spread = [
            table["speedup"] - table["speedup_low"],
            table["speedup_high"] - table["speedup"],
        ]
        axes.barh(places, table["speedup"], color=colours, height=0.6)
        axes.errorbar(
            table["speedup"], places, xerr=spread, fmt="none", ecolor=theme.ink
        )
        for place, (_, row) in zip(places, table.iterrows(), strict=True):
            text = f" {row['rate']:,.0f} / s"
            axes.annotate(text, (row["speedup_high"], place), va="center")
        axes.margins(x=0.25)
        axes.set_yticks(places, table["mode"])
        axes.invert_yaxis()
        axes.axvline(1, color=theme.ink, lw=1, ls=":")
        axes.set_xlabel("examples a second, over those of float32")
        axes.grid(visible=False, axis="y")

    return Drawing(
        "rates",
        f"{best['mode']} trains {best['speedup'] / over:.1f} times as fast as {base} "
        f"on {best['device']}",
        alt=f"Examples a second of each precision over float32's. {finding.answer}",
        caption="Median over seeds with its 95% interval; numbers are examples a "
        "second. Grey: without any part of Lockstep.",
        data=table,
        size=(WIDTH, 3.0),
        paint=paint,
    )
