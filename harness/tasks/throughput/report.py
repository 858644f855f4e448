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
from harness.tasks.cells import interval, on_gpus

ROW = ["device", "net", "mode"]

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
    """Examples per second of each mode, also relative to fp32, by device and net.

    Medians over the seeds with intervals; ``speedup`` pairs the runs of each seed.
    """
    runs = pd.DataFrame(map(_run, records))
    base = runs[runs["mode"] == "fp32"].set_index([*ROW[:2], "seed"])["rate"]
    runs = runs.join(base.rename("base"), on=[*ROW[:2], "seed"])
    runs["speedup"] = runs["rate"] / runs["base"]
    rows = []
    for (device, net, mode), of in runs.groupby(ROW, sort=False):
        row = {"mode": mode, "device": device, "net": net}
        row |= interval("rate", of["rate"])
        speedup = of.sort_values("seed")["speedup"].dropna()
        row |= interval("speedup", speedup)
        rows.append({**row, "seeds": len(of)})
    return pd.DataFrame(rows)


def _run(record: Record) -> dict[str, object]:
    of = record.config
    return {
        "device": record.subject.get("device_name", record.subject["device"]),
        "net": f"{of['depth']} x {of['width']}, batch {of['batch']}",
        "mode": of["mode"],
        "seed": record.seed,
        "rate": record.summary["rate"],
    }


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the rates of the first device and net; nothing without runs of fp32."""
    table = finding.tables.get("rates", pd.DataFrame(columns=["speedup"]))
    table = table.dropna(subset="speedup")
    if table.empty:
        return
    device, net = table.iloc[0][["device", "net"]]
    table = table[(table["device"] == device) & (table["net"] == net)]
    speedup = table.set_index("mode")["speedup"]
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
