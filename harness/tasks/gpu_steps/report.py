"""The table of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from harness.tasks.gpu_steps.task import GRAPH, STACKS, WAYS


def steps(records: Sequence[Record]) -> pd.DataFrame:
    """Time, waits and launches of each stack and way, by device; medians over seeds.

    ``over_bare`` is the time over that of the bare step without a graph.
    """
    groups: dict[tuple[str, str, str], dict[int, Record]] = {}
    for record in on_gpus(records):
        name = record.subject.get("device_name", record.subject["device"])
        key = name, record.config["stack"], record.config["way"]
        groups.setdefault(key, {})[record.seed] = record
    rows = []
    for (name, stack, way), runs in groups.items():
        row: dict[str, Any] = {"stack": stack, "way": way, "device": name}
        times = [run.summary["time"] for run in runs.values()]
        row |= bootstrap(median, times).named("time")
        bare = groups.get((name, "bare", "host"), {})
        seeds = sorted(set(runs) & set(bare))
        pairs = [runs[k].summary["time"] / bare[k].summary["time"] for k in seeds]
        row["over_bare"] = float(np.median(pairs)) if pairs else np.nan
        for count in ("waits", "launches"):
            row[count] = float(np.median([r.summary[count] for r in runs.values()]))
        rows.append({**row, "seeds": len(runs)})
    return pd.DataFrame(rows)


def waits(number: float) -> str:
    """Return a number of waits in words."""
    return f"{number:.0f} wait{'' if number == 1 else 's'}"


APART = ("stack", "way")
"""The settings that distinguish runs in the tables."""

SLACK = 0.2
"""The largest distance of intervals of times, because processors and GPUs differ."""

NOTHING = "Not measured yet on a GPU; runs on a CPU are not counted."


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the runs on GPUs, or say that there are none."""
    if not on_gpus(records):
        return Judgement(note=NOTHING)
    table = steps(records)
    return Judgement(tables={"steps": table})


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare times on the same kind of device; the table may be empty."""
    keys = ["stack", "way", "device"]
    empty = pd.DataFrame(columns=[*keys, *TIME])
    both = published.get("steps", empty).merge(
        own.get("steps", empty), on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_time(row, "_published"), _time(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    return both.assign(matches=pd.Series(agree, index=both.index, dtype=bool))


TIME = ("time", "time_low", "time_high")


def _time(row: pd.Series, whose: str) -> Interval:
    return Interval(*(row[f"{name}{whose}"] for name in TIME))


def _on_gpu(name: str) -> Callable[[Record], float]:
    """Return a reader of a number of a run; NaN for runs that are not on a GPU."""
    return lambda record: record.summary[name] if on_gpus([record]) else np.nan


METRICS = {
    "time": Metric(_on_gpu("time"), "microseconds a step", "smaller"),
    "waits": Metric(_on_gpu("waits"), "waits a step", "smaller"),
    "launches": Metric(_on_gpu("launches"), "launches a step", "smaller"),
}
"""The metrics by which runs are compared."""

HEIGHT = 0.26
"""Of a bar; the bars of a stack touch."""


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figure; nothing without runs on a GPU."""
    if "steps" in finding.tables:
        yield times(finding)


def times(finding: Finding) -> Drawing:
    """Microseconds a step; a group of bars per stack, a bar per way."""
    table = finding.tables["steps"]
    table = table[table["device"] == table["device"].iloc[0]]
    stacks = [name for name in STACKS if (table["stack"] == name).any()]
    graphs = table[table["way"] == GRAPH].set_index("stack")["time"]

    def paint(canvas: Canvas, theme: Theme) -> None:
        axes = canvas.subplots()
        colours = dict(
            zip(WAYS, (theme.faint, theme.ink, theme.methods["default"]), strict=True)
        )
        for k, way in enumerate(WAYS):
            rows = table[table["way"] == way].set_index("stack").reindex(stacks)
            places = [place + (k - 1) * HEIGHT for place in range(len(stacks))]
            spread = [rows["time"] - rows["time_low"], rows["time_high"] - rows["time"]]
            axes.barh(places, rows["time"], HEIGHT, color=colours[way], label=way)
            axes.errorbar(rows["time"], places, xerr=spread, fmt="none", ecolor="gray")
            for place, (_, row) in zip(places, rows.iterrows(), strict=True):
                if np.isfinite(row["time"]):
                    text = f" {row['time']:,.0f} µs, {waits(row['waits'])}"
                    axes.annotate(text, (row["time_high"], place), va="center")
        axes.margins(x=0.3)
        axes.set_yticks(range(len(stacks)), stacks)
        axes.invert_yaxis()
        axes.set_xlabel("microseconds a step")
        axes.grid(visible=False, axis="y")
        canvas.legend(loc="outside lower center", ncols=len(WAYS))

    slowest = graphs.max() / graphs.get("bare", np.nan) if len(graphs) else np.nan
    return Drawing(
        "times",
        f"In a CUDA graph the slowest stack takes {slowest:.0f} times a bare step on "
        f"{table['device'].iloc[0]}",
        alt=f"Microseconds a step of each stack and way. {finding.answer}",
        caption="Median over seeds with its 95% interval. Beside each bar is the time "
        "and how often a step waits for the GPU. Host: a step as usual. Capturable: "
        "with capturable=True, but without a graph.",
        data=table,
        size=(WIDTH, 4.4),
        paint=paint,
    )
