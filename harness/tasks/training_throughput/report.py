"""Examples a second with and without a wrapper, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from harness.figures.marks import dots, log_axis, unique
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.cells import backend_of, by_config, interval, ratio
from harness.tasks.training_throughput.task import CONTROL

ARM = ("workload", "precision")
"""The settings that name a row of the tables."""


def is_timed(record: Record) -> bool:
    """Whether a run has times; fp16 on a CPU has none."""
    return record.status == "ok" and "rate/bare" in record.summary


def over_bare(record: Record) -> float:
    """Return the rate of the wrapped step over that of the bare step of the run."""
    if not is_timed(record):
        return 0.0 if record.status == "diverged" else np.nan
    return record.summary["rate/wrapped"] / record.summary["rate/bare"]


METRICS = {"ratio": Metric(over_bare, "ratio", "larger")}
"""The metric of a run, which is a comparison within it."""


def judge(records: Sequence[Record]) -> Judgement:
    return Judgement(tables={"rates": rates(records)})


def rates(records: Sequence[Record]) -> pd.DataFrame:
    """Examples per second and ratios within runs; medians over seeds with intervals.

    ``ratio`` = wrapped / bare. ``control`` = a second bare step / bare, the difference
    of two equal steps. A row without times has NaN and 0 ``seeds``.
    """
    rows = []
    for group in by_config(records):
        first, timed = group[0], [record for record in group if is_timed(record)]
        bare, wrapped, again = (
            [record.summary[f"rate/{name}"] for record in timed]
            for name in ("bare", "wrapped", CONTROL)
        )
        rows.append(
            {
                **{name: first.config[name] for name in ARM},
                "backend": backend_of(first),
                "device": first.subject.get("device_name", first.subject["device"]),
                **interval("bare", bare),
                **interval("wrapped", wrapped),
                **ratio("ratio", wrapped, bare),
                **ratio("control", again, bare),
                "seeds": len(timed),
            }
        )
    return pd.DataFrame(rows)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the ratios; nothing without times."""
    table = finding.tables["rates"]
    table = table[table["seeds"] > 0]
    if table.empty:
        return
    worst = table.sort_values("ratio", kind="stable").iloc[0]
    cases = table["workload"] + ", " + table["precision"]
    rows = table.assign(case=cases, hue="default")
    yield dots(
        "ratios",
        f"At worst a wrapped step keeps {worst['ratio']:.0%} of the bare rate on "
        f"{worst['workload']}, {worst['precision']} ({worst['backend']})",
        rows.sort_values("case", key=lambda of: of.map(unique(of).index)),
        "ratio",
        "examples a second, over those of the bare step",
        hues={},
        alt="Examples a second of wrapped steps over those of bare ones, for each "
        f"workload, precision and backend. {finding.answer}",
        caption="Median over seeds with its 95% interval. Grey lines are the control: "
        "a bare step against a bare step.",
        data=table,
        level=1,
        control="bare against bare",
        axis=lambda panel: log_axis(panel, "x"),
    )
