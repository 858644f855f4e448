"""Tables of NovoGrad's state size, and of losses with and without warm-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import grouped
from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.checks import Check, all_hold
from harness.tasks.warm_up import tables

__all__ = ["APART", "METRICS", "checks", "judge", "match", "warm_up_changes"]

APART = ("optimizer", "warm_up", "learning_rate")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "bits a byte": Metric(tables.bits, "bits per byte", "smaller"),
    "state": Metric(tables.state_ratio, "bytes a byte of weights", "smaller"),
}
"""The metrics by which runs are compared."""

CLOSE = 0.1
"""The largest difference of losses in bits per byte; seeds differ as much."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make the table of the records, and check it."""
    ends = tables.ends(records)
    return Judgement(tables={"ends": ends}, checks=checks(ends))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's losses with the published ones."""
    columns = [*tables.ARM, "bits"]
    rows = published["ends"][columns].merge(
        own["ends"][columns], on=tables.ARM, suffixes=("_published", "_own")
    )
    gap = np.abs(rows["bits_own"] - rows["bits_published"])
    return rows.assign(matches=gap <= CLOSE)


def checks(ends: pd.DataFrame) -> list[Check]:
    """Return each check with whether it holds."""
    known = ends[ends["state"].notna()]
    constant = known.groupby(["optimizer", "backend"])["state"].nunique() == 1
    return [
        ("the state of an optimizer does not depend on its rate", all_hold(constant))
    ]


def warm_up_changes(ends: pd.DataFrame) -> dict[str, float]:
    """Return the change of each optimizer's loss by its best warm-up.

    In bits per byte.
    """
    changes = {}
    for (name,), rows in grouped(ends, "optimizer"):
        bare, warm = rows[rows["warm_up"] == 0], rows[rows["warm_up"] > 0]
        if len(bare) and len(warm):
            changes[name] = float(warm["bits"].min() - bare["bits"].iloc[0])
    return changes
