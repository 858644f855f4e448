"""Compute the answer: NovoGrad's state size, and whether it needs warm-up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend, grouped
from harness.judgement.finding import NO_ANSWER, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.checks import Check, all_hold, listed
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

OWN = "NovoGrad"


def judge(records: Sequence[Record]) -> Judgement:
    """Make the table of the records, check it and state the answer."""
    ends = tables.ends(records)
    answer = " ".join(_answer(first_backend(ends[ends["best"]])))
    return Judgement(answer or f"{NO_ANSWER}.", {"ends": ends}, _small_print(ends))


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


def _answer(ends: pd.DataFrame) -> Iterator[str]:
    """Quote NovoGrad's losses and the others' best ones, then gains and states."""
    best = ends.groupby("optimizer", sort=False)["bits"].min()
    if OWN in best:
        own = ends[ends["optimizer"] == OWN]
        parts = []
        for text, rows in (
            ("without warm-up", own[own["warm_up"] == 0]),
            ("with it", own[own["warm_up"] > 0]),
        ):
            if len(rows):
                parts.append(f"{rows['bits'].min():.2f} bits per byte {text}")
        others = [
            f"{abs(best[OWN] - bits):.2f} {'above' if best[OWN] > bits else 'below'} "
            f"{name}"
            for name, bits in best.drop(OWN).items()
        ]
        beside = f": {joined(others)} at their best" if others else ""
        yield f"{OWN} ends at {joined(parts)}{beside}."
    parts = []
    gains = [
        f"{change:+.2f} ({name})"
        for name, change in warm_up_changes(ends).items()
        if name != OWN
    ]
    if gains:
        parts.append(f"warm-up changes the others' losses by {joined(gains)}")
    known = ends[ends["ratio"].notna()].drop_duplicates("optimizer")
    sizes = [f"{row['ratio']:.2f} ({row['optimizer']})" for _, row in known.iterrows()]
    if sizes:
        parts.append(f"the state takes {joined(sizes)} bytes per byte of weights")
    if parts:
        text = "; ".join(parts)
        yield f"{text[0].upper()}{text[1:]}."


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


def _small_print(ends: pd.DataFrame) -> list[str]:
    return [
        *listed(checks(ends)),
        "The runs are short: in longer ones warm-up may matter more, or less.",
        "The rate rises linearly during warm-up and then stays. Weights are not "
        "decayed; other arguments are each optimizer's defaults, and SGD has momentum "
        "0.9.",
        "The text is Python's help on its topics. A byte drawn at random from 256 "
        "costs 8 bits.",
        "State counts the bytes of all tensors that the optimizer keeps, at the end "
        "of training.",
        "Medians over seeds, intervals bootstrapped (95%).",
    ]
