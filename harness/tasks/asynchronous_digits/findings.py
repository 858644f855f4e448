"""The answer, computed: which method bears many workers and long periods."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.finding import NO_ANSWER, Judgement, joined
from harness.metrics import Metric
from harness.records.record import Record
from harness.tasks.asynchronous_digits import tables
from harness.tasks.checks import Check, all_hold, listed

__all__ = ["APART", "METRICS", "NAMES", "RATIO", "checks", "judge", "match"]

APART = ("method", "workers", "period", "learning_rate")
"""The settings by which the tables tell runs apart."""

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
"""Workers / period from which on AGN lost accuracy in the thesis."""

GOOD = 0.95
"""A center that classifies this share of held-out images is a good one here."""

CLOSE = 0.05
"""How far a user's accuracy may be from the published one; seeds differ as much."""


def _summary(name: str) -> Callable[[Record], float]:
    """Return a reader of a number, 0 of a run that diverged."""
    return lambda record: float(record.summary.get(name, 0.0))


METRICS = {
    "accuracy": Metric(_summary("accuracy"), "share", "larger"),
    "mean accuracy": Metric(_summary("mean_accuracy"), "share", "larger"),
}
"""The numbers by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check them and state the answer."""
    cells = tables.cells(records)
    ends = tables.ends(cells)
    contents = {
        "ends": ends,
        "wins": tables.wins(ends, OWN),
        "curves": tables.curves(cells),
    }
    return Judgement(_answer(contents), contents, _small_print(ends))


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
            "a push is stale by less than the number of workers, in the mean",
            all_hold(ends["staleness"] < ends["workers"]),
        ),
    ]


# -- sentences -------------------------------------------------------------------------


def _answer(contents: Mapping[str, pd.DataFrame]) -> str:
    ends = contents["ends"]
    sentences = [
        *_of_wins(contents["wins"]),
        *_of_the_line(ends[ends["best"] & (ends["method"] == OWN)]),
        *_of_periods(ends[ends["best"]]),
    ]
    return " ".join(sentences) or f"{NO_ANSWER}."


def _of_wins(wins: pd.DataFrame) -> Iterator[str]:
    """Quote in how many cells AGN is better over the whole time."""
    parts = [
        f"{NAMES[row['against']]} in {row['higher']} of {row['of']}"
        for _, row in wins.iterrows()
    ]
    if parts:
        yield (
            f"With as many workers and the same period, {NAMES[OWN]} is more accurate, "
            f"averaged over time, than {joined(parts)} cases."
        )


def _of_the_line(own: pd.DataFrame) -> Iterator[str]:
    """Quote how good AGN is on either side of the thesis' line."""
    beyond = own["workers"] / own["period"] >= RATIO
    if beyond.any() and not beyond.all():
        poor = own["accuracy"] < GOOD
        yield (
            f"{NAMES[OWN]} ends below {GOOD:.0%} accuracy in "
            f"{int((poor & beyond).sum())} of {int(beyond.sum())} cases with workers / "
            f"period of {RATIO} or more, and in {int((poor & ~beyond).sum())} of the "
            f"{int((~beyond).sum())} others."
        )


def _of_periods(ends: pd.DataFrame) -> Iterator[str]:
    """Quote what longer periods do to DOWNPOUR and to AGN, with the most workers."""
    most = ends[ends["workers"] == ends["workers"].max()]
    parts = []
    for method in ("downpour", OWN):
        rows = most[most["method"] == method].sort_values("period")
        if rows["period"].nunique() > 1:
            values = [
                f"{row['accuracy']:.0%} at period {row['period']}"
                for row in _telling(rows)
            ]
            parts.append(f"{NAMES[method]} ends at {joined(values)}")
    if len(parts) == 2:
        yield f"With {most['workers'].iloc[0]} workers {'; '.join(parts)}."


def _telling(rows: pd.DataFrame) -> Sequence[Mapping[Hashable, Any]]:
    """Return the first row, that of the lowest accuracy, and the last, each once."""
    lowest = int(np.argmin(rows["accuracy"]))
    positions = sorted({0, lowest, len(rows) - 1})
    return rows.iloc[positions].to_dict("records")


def _small_print(ends: pd.DataFrame) -> list[str]:
    return [
        *listed(checks(ends)),
        "Time is simulated: a local step takes 1 in the mean (standard deviation "
        "0.25), and messages of all methods take equally long. The same seed gives "
        "every method the same durations.",
        "The thesis measured with MNIST and 5000 minibatches of 64 on a cluster; here "
        "it is the same budget on scikit-learn's 8 x 8 digits.",
        "Medians over seeds, intervals bootstrapped (95 %).",
    ]
