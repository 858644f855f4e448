"""Compute the answer: which method works with many workers and long periods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import NO_ANSWER, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.asynchronous_digits import tables
from harness.tasks.checks import Check, all_hold, listed

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

GOOD = 0.95
"""The held-out accuracy from which on a center is good."""

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
    """Make tables of the records, check them and state the answer."""
    cells = tables.cells(records)
    ends = tables.ends(cells)
    contents = {
        "ends": ends,
        "wins": tables.wins(ends, OWN),
        "curves": tables.curves(cells),
    }
    return Judgement(_answer(contents), contents, _small_print(contents))


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


# -- sentences -------------------------------------------------------------------------


def _answer(contents: Mapping[str, pd.DataFrame]) -> str:
    ends = contents["ends"]
    sentences = [*_of_wins(contents["wins"]), *_of_periods(ends[ends["best"]])]
    return " ".join(sentences) or f"{NO_ANSWER}."


def _of_wins(wins: pd.DataFrame) -> Iterator[str]:
    """Name the methods that AGN beats in most cases, and the other methods."""
    often = wins["higher"] > wins["of"] / 2
    beaten, others = (
        joined([NAMES[name] for name in wins[rows]["against"]])
        for rows in (often, ~often)
    )
    if beaten or others:
        than = f"more accurate than {beaten} in most cases" if beaten else ""
        not_than = f"not {'' if beaten else 'more accurate '}than {others}"
        parts = [than, not_than if others else ""]
        yield (
            "At equal workers and periods, averaged over training, "
            f"{NAMES[OWN]} is {', but '.join(filter(None, parts))}."
        )


def _of_periods(ends: pd.DataFrame) -> Iterator[str]:
    """Quote the final accuracy of DOWNPOUR and AGN in the most difficult case.

    This case has the most workers and the longest period.
    """
    most = ends[ends["workers"] == ends["workers"].max()]
    longest = most[most["period"] == most["period"].max()]
    rows = {name: longest[longest["method"] == name] for name in ("downpour", OWN)}
    parts = [
        f"{NAMES[name]} ends at {row['accuracy'].iloc[0]:.0%} accuracy"
        for name, row in rows.items()
        if len(row)
    ]
    if len(parts) == 2:
        workers, period = longest[["workers", "period"]].iloc[0]
        yield (
            f"With {workers} workers and a period of {period}, {' and '.join(parts)}."
        )


def _counts(wins: pd.DataFrame) -> Iterator[str]:
    """Quote in how many cells AGN has the higher mean accuracy."""
    parts = [
        f"{NAMES[row['against']]} in {row['higher']} of {row['of']}"
        for _, row in wins.iterrows()
    ]
    if parts:
        yield f"In mean accuracy {NAMES[OWN]} is above {joined(parts)} cases."


def _of_the_line(own: pd.DataFrame) -> Iterator[str]:
    """Quote the accuracy of AGN on both sides of the thesis' line."""
    beyond = own["workers"] / own["period"] >= RATIO
    if beyond.any() and not beyond.all():
        poor = own["accuracy"] < GOOD
        yield (
            f"{NAMES[OWN]} ends below {GOOD:.0%} accuracy in "
            f"{int((poor & beyond).sum())} of {int(beyond.sum())} cases with workers / "
            f"period of {RATIO} or more, and in {int((poor & ~beyond).sum())} of the "
            f"{int((~beyond).sum())} others."
        )


def _lowest(ends: pd.DataFrame) -> Iterator[str]:
    """Quote the period with the lowest final accuracy, with the most workers."""
    most = ends[ends["workers"] == ends["workers"].max()]
    for method in ("downpour", OWN):
        rows = most[most["method"] == method]
        if rows["period"].nunique() > 1:
            worst = rows.loc[rows["accuracy"].idxmin()]
            yield (
                f"With {worst['workers']} workers {NAMES[method]} ends lowest at "
                f"period {worst['period']}, with {worst['accuracy']:.0%} accuracy."
            )


def _small_print(contents: Mapping[str, pd.DataFrame]) -> list[str]:
    ends = contents["ends"]
    best = ends[ends["best"]]
    return [
        *_counts(contents["wins"]),
        *_of_the_line(best[best["method"] == OWN]),
        *_lowest(best),
        *listed(checks(ends)),
        "A worker of AGN pushes the mean of its round: of its gradients, or as AGN "
        "(delta) of the changes of its weights. DOWNPOUR and DynSGD push the sum, and "
        "DynSGD divides it by the staleness of the push + 1. In EASGD a worker and the "
        "center move towards each other.",
        "Time is simulated. A local step takes 1 on average (standard deviation 0.25), "
        "and messages of all methods take equally long. The same seed gives every "
        "method the same durations.",
        "The thesis measured with MNIST and 5000 minibatches of 64 on a cluster; here "
        "it is the same budget on scikit-learn's 8 x 8 digits.",
        "Medians over seeds, intervals bootstrapped (95%).",
    ]
