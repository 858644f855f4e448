"""Examples a second of each precision, from records of GPUs alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from harness.figures.marks import dots
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.cells import by_config, interval, on_gpus

PEERS = ("fp32", "tf32", "GradScaler fp16", "autocast bf16")
"""The modes without any part of ours."""

METRICS = {
    "rate": Metric(
        lambda record: record.summary["rate"] if on_gpus([record]) else np.nan,
        "examples a second",
        "larger",
    )
}
"""The rate of a run on a GPU; other runs are not judged."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make a table of the runs on GPUs, or say that there are none."""
    usable = on_gpus(records)
    if not usable:
        return Judgement(note="Not measured yet on a GPU; runs on a CPU do not count.")
    return Judgement(tables={"rates": rates(usable)})


def rates(records: Sequence[Record]) -> pd.DataFrame:
    """Examples per second of each mode, also relative to fp32 with the same net.

    Medians over the seeds with intervals; ``speedup`` pairs the runs of each seed.
    """
    plain = {
        (net_of(record), record.seed): record.summary["rate"]
        for record in records
        if record.config["mode"] == "fp32"
    }
    rows = []
    for group in by_config(records):
        first, rate = group[0], [record.summary["rate"] for record in group]
        base = [plain.get((net_of(record), record.seed), np.nan) for record in group]
        speedup = np.array(rate) / base
        row = {
            "mode": first.config["mode"],
            "device": first.subject.get("device_name", first.subject["device"]),
            "net": net_of(first),
            **interval("rate", rate),
            **interval("speedup", speedup[~np.isnan(speedup)]),
            "seeds": len(group),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def net_of(record: Record) -> str:
    of = record.config
    return f"{of['depth']} x {of['width']}, batch {of['batch']}"


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the rates of the first net; nothing without runs of fp32."""
    if "rates" not in finding.tables:
        return
    table = finding.tables["rates"].dropna(subset="speedup")
    if table.empty:
        return
    table = table[table["net"] == table["net"].iloc[0]]
    device, speedup = table["device"].iloc[0], table.set_index("mode")["speedup"]
    base = "tf32" if "tf32" in speedup else "fp32"
    best = speedup.idxmax()

    yield dots(
        "rates",
        f"{best} trains {speedup[best] / speedup[base]:.1f} times as fast as "
        f"{base.upper()} on {device}",
        table.assign(
            case=table["mode"],
            hue=np.where(table["mode"].isin(PEERS), "faint", "default"),
            backend="pytorch",
        ),
        "speedup",
        "examples a second, over those of float32",
        hues={"default": "with Lockstep", "faint": "without"},
        alt=f"Examples a second of each precision over float32's. {finding.answer}",
        caption="Median over seeds with its 95% interval.",
        data=table,
        level=1,
    )
