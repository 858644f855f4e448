"""Times and waits of small steps, from records of GPUs alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from harness.figures.marks import dots, log_axis
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.cells import interval, on_gpus

ARM = ("stack", "way")
"""The settings that name a row of the tables."""

HUES = {"host": "faint", "capturable": "ink", "CUDA graph": "default"}
"""Way -> its colour in the theme."""


METRICS = {
    "time": Metric(
        lambda record: record.summary["time"] if on_gpus([record]) else np.nan,
        "microseconds a step",
        "smaller",
    )
}
"""The time of a run on a GPU; other runs are not judged."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the runs on GPUs, or say that there are none."""
    usable = on_gpus(records)
    if not usable:
        return Judgement(note="Not measured yet on a GPU; runs on a CPU do not count.")
    return Judgement(tables={"steps": steps(usable)})


def steps(records: Sequence[Record]) -> pd.DataFrame:
    """Time and waits of each stack and way, by device; medians over seeds."""
    runs = pd.DataFrame(
        {
            **{name: record.config[name] for name in ARM},
            "device": record.subject.get("device_name", record.subject["device"]),
            **record.summary,
        }
        for record in records
    )
    rows = []
    for (device, stack, way), of in runs.groupby(["device", *ARM], sort=False):
        row = {"stack": stack, "way": way, "device": device}
        row |= {**interval("time", of["time"]), "waits": of["waits"].median()}
        rows.append({**row, "seeds": len(of)})
    return pd.DataFrame(rows)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the times of the first device; nothing without runs on a GPU."""
    if "steps" not in finding.tables:
        return
    table = finding.tables["steps"]
    device = table["device"].iloc[0]
    table = table[table["device"] == device]
    graphs = table[table["way"] == "CUDA graph"].set_index("stack")["time"]
    slowest = graphs.max() / graphs.get("bare", np.nan)

    yield dots(
        "times",
        f"In a CUDA graph the slowest stack takes {slowest:.0f} times a bare step on "
        f"{device}",
        table.assign(
            case=table["stack"], hue=table["way"].map(HUES), backend="pytorch"
        ),
        "time",
        "microseconds a step",
        hues={hue: way for way, hue in HUES.items()},
        alt=f"Microseconds a step of each stack and way. {finding.answer}",
        caption="Median over seeds with its 95% interval. Host: a step as usual. "
        "Capturable: with capturable=True, but without a graph.",
        data=table,
        axis=lambda panel: log_axis(panel, "x"),
    )
