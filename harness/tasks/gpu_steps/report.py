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
from harness.tasks.cells import by_config, interval, on_gpus

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
    """Time and waits of each stack and way; medians over seeds."""
    rows = []
    for group in by_config(records):
        first, runs = group[0], [record.summary for record in group]
        row = {
            "stack": first.config["stack"],
            "way": first.config["way"],
            "device": first.subject.get("device_name", first.subject["device"]),
            **interval("time", [run["time"] for run in runs]),
            "waits": np.median([run["waits"] for run in runs]),
            "seeds": len(group),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the times; nothing without runs on a GPU."""
    if "steps" not in finding.tables:
        return
    table = finding.tables["steps"]
    graphs = table[table["way"] == "CUDA graph"].set_index("stack")["time"]
    slower = graphs.get("scaling", np.nan) / graphs.get("bare", np.nan)
    yield dots(
        "times",
        f"In a CUDA graph a loss scale makes a step {slower:.1f} times as long on "
        f"{table['device'].iloc[0]}",
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
