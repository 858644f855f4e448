"""The table and the figures of NovoGrad's experiment, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from harness.figures.marks import dots, first_backend, grouped
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.cells import backend_of, by_config
from harness.tasks.checks import all_hold

ARM = ("optimizer", "warm_up", "learning_rate")
"""The settings that name a row of the tables."""

HUES = {"NovoGrad": "default", "AdamW": "none", "SGD": "strict"}
"""Optimizer -> the method of the theme with its colour."""


def bits(record: Record) -> float:
    """Return the held-out loss in bits per byte, infinite if the run diverged."""
    return record.summary.get("bits", np.inf)


def state_ratio(record: Record) -> float:
    """Return the bytes of state per byte of weights; NaN if the run diverged."""
    summary = record.summary
    return summary["state"] / summary["weights"] if summary else np.nan


METRICS = {
    "bits a byte": Metric(bits, "bits per byte", "smaller"),
    "state": Metric(state_ratio, "bytes a byte of weights", "smaller"),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    table = ends(records)
    sizes = table.groupby(["optimizer", "backend"])["state"].nunique()
    check = "the state of an optimizer does not depend on its rate"
    return Judgement({"ends": table}, [(check, all_hold(sizes[sizes > 0] == 1))])


def ends(records: Sequence[Record]) -> pd.DataFrame:
    """A row per arm: the median ``bits`` per byte with its interval, and the state.

    ``state`` is in bytes, and ``ratio`` in bytes of state per byte of weights; both are
    NaN if all runs diverged. ``best`` marks the rate with the lowest loss, if an
    optimizer and its warm-up had several.
    """
    rows = []
    for group in by_config(records):
        measured = [record for record in group if record.summary]
        row = {
            **{name: group[0].config[name] for name in ARM},
            "backend": backend_of(group[0]),
            "seeds": len(group),
            "diverged": len(group) - len(measured),
            **bootstrap(median, [bits(record) for record in group]).named("bits"),
            "state": measured[0].summary["state"] if measured else np.nan,
            "ratio": state_ratio(measured[0]) if measured else np.nan,
        }
        rows.append(row)
    table = pd.DataFrame(rows)
    arms = table.groupby(["optimizer", "warm_up", "backend"])
    return table.assign(best=arms["bits"].rank(method="first") == 1)


def drawings(finding: Finding) -> Iterator[Drawing]:
    table = finding.tables["ends"]
    table = first_backend(table[table["best"]])
    yield losses(finding, table[np.isfinite(table["bits"])])
    yield state(finding, table[table["ratio"].notna()].drop_duplicates("optimizer"))


def losses(finding: Finding, table: pd.DataFrame) -> Drawing:
    """Final loss for each warm-up and optimizer."""
    changes = []
    for (name,), rows in grouped(table, "optimizer"):
        bare, warm = rows[rows["warm_up"] == 0], rows[rows["warm_up"] > 0]
        if len(bare) and len(warm):
            change = warm["bits"].min() - bare["bits"].iloc[0]
            changes.append(f"{change:+.2f} ({name})")
    title = f"Warm-up changes the loss by {joined(changes)} bits a byte"
    shown = table.sort_values("warm_up", kind="stable")
    return dots(
        "losses",
        title if changes else "Loss at the end over warm-up",
        shown.assign(
            case=shown["warm_up"].map("warm-up {:.0%}".format),
            hue=shown["optimizer"].map(HUES),
        ),
        "bits",
        "held-out loss (bits a byte)",
        hues={hue: name for name, hue in HUES.items()},
        alt="Held-out loss of a byte transformer at the end of training for each share "
        f"of steps with warm-up and each optimizer. {finding.answer}",
        caption="Each optimizer at its best learning rate with this warm-up. "
        "Medians over seeds with 95% intervals; lower is better.",
        data=table,
    )


def state(finding: Finding, table: pd.DataFrame) -> Drawing:
    """Bytes of state per byte of weights."""
    parts = [f"{row['ratio']:.2f} ({row['optimizer']})" for _, row in table.iterrows()]
    ends = {"low": table["ratio"], "high": table["ratio"]}
    return dots(
        "state",
        f"Bytes of state a byte of weights: {joined(parts)}",
        table.assign(case=table["optimizer"], hue=table["optimizer"].map(HUES), **ends),
        "ratio",
        "bytes of optimizer state a byte of weights",
        hues={},
        alt=f"Bytes that the optimizer's state takes. {finding.answer}",
        caption="All tensors of the state at the end of training, measured.",
        data=table,
        axis=lambda panel: panel.set_xlim(left=0),
    )
