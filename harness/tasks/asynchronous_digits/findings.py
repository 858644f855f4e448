"""Tables and checks: which method works with many workers and long periods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.asynchronous_digits import tables
from harness.tasks.checks import Check, all_hold

__all__ = ["APART", "METRICS", "NAMES", "RATIO", "checks", "judge", "match"]

APART = ("method", "workers", "period", "learning_rate")
"""The settings that distinguish runs in the tables."""

NAMES = {
    "agn-delta": "AGN (delta)",
    "agn-gradient": "AGN (gradient)",
    "downpour": "DOWNPOUR",
    "dynsgd": "DynSGD",
    "easgd": "EASGD",
    "synchronous": "synchronous",
}

OWN = "agn-delta"
"""AGN as its paper describes it."""

RATIO = 2.5
"""The ratio workers / period from which on AGN lost accuracy in the thesis."""

CLOSE = 0.05
"""The largest difference from a published accuracy; seeds differ as much."""


def _summary(name: str) -> Callable[[Record], float]:
    """Return a reader of a value of the summary; 0 if the run diverged."""
    return lambda record: float(record.summary.get(name, 0.0))


METRICS = {
    "accuracy": Metric(_summary("accuracy"), "share", "larger"),
    "mean accuracy": Metric(_summary("mean_accuracy"), "share", "larger"),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check them."""
    cells = tables.cells(records)
    ends = tables.ends(cells)
    contents = {
        "ends": ends,
        "curves": tables.curves(cells),
    }
    return Judgement(tables=contents, checks=checks(ends))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's final accuracies with the published ones."""
    columns = [*tables.ARM, "accuracy"]
    rows = published["ends"][columns].merge(
        own["ends"][columns], on=tables.ARM, suffixes=("_published", "_own")
    )
    gap = np.abs(rows["accuracy_own"] - rows["accuracy_published"])
    return rows.assign(matches=gap <= CLOSE)


# -- checks ----------------------------------------------------------------------------


def checks(ends: pd.DataFrame) -> list[Check]:
    """Return each check with whether it holds."""
    own, downpour, synchronous = (
        ends[ends["method"] == name] for name in (OWN, "downpour", "synchronous")
    )
    every_step = own[own["period"] == 1].merge(
        downpour, on=tables.ARM[1:], suffixes=("", "_downpour")
    )
    return [
        (
            "with a period of 1 AGN and DOWNPOUR are the same",
            all_hold(every_step["accuracy"] == every_step["accuracy_downpour"]),
        ),
        (
            "no push of a synchronous run is stale",
            all_hold(synchronous["staleness"] == 0),
        ),
        (
            "on average a push is stale by less than the number of workers",
            all_hold(ends["staleness"] < ends["workers"]),
        ),
    ]
