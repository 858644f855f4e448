"""Compute the answer: whether zeros make a difference to the global norm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import grouped
from harness.judgement.finding import NO_ANSWER, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.checks import Check, all_hold, listed
from harness.tasks.gradient_norm import tables

__all__ = ["APART", "METRICS", "STOCK", "checks", "judge", "match"]

APART = ("gradients",)
"""The settings that distinguish runs in the tables."""

METRICS = {
    "norm ratio": Metric(lambda r: r.summary["ratio"], "ratio", "smaller"),
    "unequal entries": Metric(lambda r: r.summary["unequal"], "share", "smaller"),
}
"""The metrics by which runs are compared; the first one is a run's maximum."""

STOCK = {"tf": "tf.clip_by_global_norm", "pytorch": "torch.nn.utils.clip_grad_norm_"}
"""Each framework's own clipping function."""

ROUNDING = 1.0
"""The tolerance of two sums of squares in parts per million: eight float32 ULPs."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check them and state the answer."""
    table = tables.norms(records)
    return Judgement(_answer(table), {"norms": table}, _small_print(table))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's norms with the published ones."""
    columns = [*tables.KEYS, "lowest", "highest"]
    rows = published["norms"][columns].merge(
        own["norms"][columns], on=tables.KEYS, suffixes=("_published", "_own")
    )
    gaps = [
        np.abs(rows[f"{end}_own"] - rows[f"{end}_published"])
        for end in ("lowest", "highest")
    ]
    return rows.assign(matches=(gaps[0] <= ROUNDING) & (gaps[1] <= ROUNDING))


def checks(table: pd.DataFrame) -> list[Check]:
    """Return each check with whether it holds."""
    first = table[table["backend"] == "tf"]
    return [
        (
            "on TensorFlow both functions return the same norms and the same clipped "
            "gradients, to the bit",
            all_hold((first["equal"] == 1) & (first["unequal"] == 0)),
        ),
        (
            "norms differ by no more than a sum of squares in another order does, one "
            "part per million",
            all_hold(table[["lowest", "highest"]].abs() <= ROUNDING),
        ),
    ]


def _answer(table: pd.DataFrame) -> str:
    return " ".join(_sentences(table)) or f"{NO_ANSWER}."


def _sentences(table: pd.DataFrame) -> Iterator[str]:
    """Quote the share of equal norms and the largest difference on each backend."""
    for (backend,), rows in grouped(table, "backend"):
        total = int(rows["lists"].sum())
        equal = round(float((rows["equal"] * rows["lists"]).sum()))
        stock = STOCK.get(backend.split(" ")[0], "the stock function")
        text = (
            f"On {backend}, clip_gradients_by_global_norm and {stock} return the same "
            f"norm to the bit for {equal:,} of {total:,} lists of gradients"
        )
        if equal < total:
            low, high = rows["lowest"].min(), rows["highest"].max()
            apart = f"{low:+.2f} to {high:+.2f} parts per million"
            text += f", and the others differ by {apart}"
        yield f"{text}."


def _small_print(table: pd.DataFrame) -> list[str]:
    return [
        *listed(checks(table)),
        "The multitask function replaces a gradient that is all zero by a scalar 0 "
        "before it takes the norm. The square of a zero adds nothing to a sum, so the "
        "norm stays as it is.",
        "Recorded: lists with a tensor of zeros and the norms that TensorFlow 1.15 "
        "returned for them, one a seed. Random: tensors of 16 to 4096 entries of "
        "magnitudes from 0.001 to 1, half of them zero.",
        "PyTorch takes the norm of the tensors' norms, and divides by it with 1e-6 "
        "added, so that its clipped gradients differ in their last digits.",
    ]
