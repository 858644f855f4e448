"""Verdicts: primary comparisons, judged by the same rule in every experiment.

Each comparison predicts an interval for an effect, paired by seed. It is

- **confirmed** if every finite end of the interval is excluded by a one-sided exact
  sign-flip test,
- **refuted** if the effect lies beyond an end by the same test,
- **undecided** otherwise.

The p-values of a page are adjusted by Holm's procedure, separately for those that
confirm and those that refute. The level is 0.05. Only one subject is judged: the
experiment's first backend that has runs. The other backends are shown but not judged,
because backends are not replicates.

A diverged run has the worst value of its metric, usually infinity. In the test, an
infinite effect outweighs all finite ones. A pair in which both runs diverged has effect
0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.declarations.declare import Experiment
from harness.declarations.primaries import Arm, Primary, matches
from harness.errors import HarnessError
from harness.records.metrics import metrics_of
from harness.records.record import Record
from harness.statistics import (
    Interval,
    beyond,
    bootstrap,
    holm,
    median,
    paired_effects,
    within,
)
from harness.tasks.cells import backend_of
from lockstep.messages.errors import sentence

__all__ = [
    "COLUMNS",
    "NOT_JUDGED",
    "NOT_RUN",
    "UNJUDGED_SCALE",
    "Result",
    "judge",
    "notices",
    "results",
    "unjudged",
    "verdict_of",
]

LEVEL = 0.05
CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
NOT_RUN, NOT_JUDGED = "not run", "not judged"
REPRODUCED, PARTLY, NOT_REPRODUCED = "reproduced", "partly", "not reproduced"

UNJUDGED_SCALE = "quick"
"""The scale for a first look. It has too few runs for a verdict."""

COLUMNS = (
    *("comparison", "claim", "metric", "unit", "arm", "against", "backend", "judged"),
    *("effect", "predicted_low", "predicted_high", "estimate", "low", "high"),
    *("p", "outcome", "pairs", "diverged", "unread", "because"),
)
"""Columns of the table of results."""


@dataclass(frozen=True)
class Pairs:
    """The effects of one comparison on one subject.

    Attributes:
        diverged: number of runs of the two arms that diverged.
        unread: number of seeds left out because a record does not have the metric.
    """

    primary: Primary
    effects: tuple[float, ...]
    diverged: int
    unread: int


@dataclass(frozen=True)
class Result:
    """The result of one comparison on one subject.

    Attributes:
        interval: of the median effect.
        p: adjusted p-value of the outcome; if undecided, the smaller of the two.
    """

    pairs: Pairs
    interval: Interval
    p: float
    outcome: str


def verdict_of(outcomes: Sequence[str]) -> str:
    """Return the verdict of the judged subject, or "" if nothing was judged.

    - ``reproduced``: all comparisons are confirmed.
    - ``not reproduced``: the first is refuted, or all that were run are.
    - ``partly``: at least one is confirmed, and at least one is not.
    - ``undecided``: none is confirmed, and the first is not refuted.

    Args:
        outcomes: of all declared comparisons, in the order of the file.
    """
    run = [each for each in outcomes if each not in (NOT_RUN, NOT_JUDGED)]
    if not run:
        return ""
    if set(outcomes) == {CONFIRMED}:
        return REPRODUCED
    if outcomes[0] == REFUTED or set(run) == {REFUTED}:
        return NOT_REPRODUCED
    return PARTLY if CONFIRMED in run else UNDECIDED


def judge(experiment: Experiment, table: pd.DataFrame) -> str:
    """Return the verdict of a table of results."""
    rows = table[table["judged"].astype(bool)]
    outcomes = dict(zip(rows["comparison"], rows["outcome"], strict=True))
    return verdict_of([outcomes.get(p.name, NOT_RUN) for p in experiment.primaries])


def results(experiment: Experiment, records: Sequence[Record]) -> pd.DataFrame:
    """Return the results: one row for every comparison on every subject.

    The ``judged`` subject is the experiment's first backend that has runs, on the CPU
    if it has runs there.
    """
    rows = []
    subjects = _subjects(experiment, records)
    for subject in subjects:
        mine = [record for record in records if backend_of(record) == subject]
        pairs = [
            _pairs(primary, experiment.task, mine) for primary in experiment.primaries
        ]
        for result in _results([each for each in pairs if each.effects]):
            rows.append((result, subject))
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    judged = next(subject for _, subject in rows)
    order = {primary.name: k for k, primary in enumerate(experiment.primaries)}
    rows.sort(key=lambda row: order[row[0].pairs.primary.name])
    content = [_row(experiment, *row, row[1] == judged) for row in rows]
    return pd.DataFrame(content, columns=list(COLUMNS))


def unjudged(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Mark the results of the scale without verdicts, and return a sentence on it."""
    sentence = (
        f"These runs are of scale {UNJUDGED_SCALE}, which shows the direction: there "
        "are too few of them for a verdict. Scale std has one."
    )
    return table.assign(outcome=NOT_JUDGED), sentence


def notices(
    experiment: Experiment, records: Sequence[Record], table: pd.DataFrame
) -> Iterator[str]:
    """Yield what a reader must know about a verdict, in full sentences."""
    yield from _of_predictions(experiment, records)
    rows = table[table["judged"].astype(bool)]
    for row in rows.to_dict("records"):
        if row["diverged"]:
            yield (
                f"{row['comparison']}: {row['diverged']} runs diverged on "
                f"{row['backend']}. They count with the worst value of the metric."
            )
        if row["unread"]:
            yield (
                f"{row['comparison']}: {row['unread']} seeds are left out on "
                f"{row['backend']}, because their records do not have the metric."
            )
    compared = set(rows["comparison"])
    missing = [p.name for p in experiment.primaries if p.name not in compared]
    if missing and len(rows):
        yield f"There are no runs yet for {', '.join(missing)}."


def _of_predictions(experiment: Experiment, records: Sequence[Record]) -> Iterator[str]:
    """Yield sentences about runs that are older than their prediction."""
    late = sum(not record.prediction for record in records)
    other = [r for r in records if r.prediction not in ("", experiment.prediction)]
    if late:
        whole = "the runs" if late == len(records) else f"{late} of {len(records)} runs"
        yield f"The prediction was written after {whole}."
    if other:
        yield (
            f"The prediction was changed after {len(other)} of {len(records)} runs: "
            "their records name another one."
        )


# -- the rule --------------------------------------------------------------------------


def _subjects(experiment: Experiment, records: Sequence[Record]) -> list[str]:
    """Return the subjects in the order of the declared backends, CPU first."""
    pairs = {(r.subject["backend"], backend_of(r)) for r in records}
    return [
        subject
        for backend in experiment.backends
        for subject in sorted(subject for name, subject in pairs if name == backend)
    ]


def _pairs(primary: Primary, task: str, records: Sequence[Record]) -> Pairs:
    """Pair the runs of two arms by seed."""
    read = metrics_of(task)[primary.metric].read
    arms = [_by_seed(primary, primary.arm, records)]
    if primary.against:
        arms.append(_by_seed(primary, primary.against, records))
    seeds = sorted(set.intersection(*(set(arm) for arm in arms)))
    diverged = sum(arm[s].status == "diverged" for arm in arms for s in seeds)
    values = np.array([[read(arm[s]) for s in seeds] for arm in arms], float)
    if not primary.against:
        neutral = 1.0 if primary.effect == "log ratio" else 0.0
        values = np.concatenate([values, np.full_like(values, neutral)])
    there = ~np.isnan(values).any(axis=0)
    unread = int((~there).sum())
    if not there.any():
        return Pairs(primary, (), diverged, unread)
    mine, other = values[:, there]
    effects = paired_effects(mine, other, primary.effect)
    return Pairs(primary, tuple(effects.tolist()), diverged, unread)


def _by_seed(
    primary: Primary, arm: Arm, records: Sequence[Record]
) -> dict[int, Record]:
    """Return the records of an arm by seed.

    Raises:
        HarnessError: two records of a seed differ in their settings.
    """
    mine: dict[int, Record] = {}
    for record in records:
        if not matches(arm, record.config):
            continue
        if mine.setdefault(record.seed, record).config != record.config:
            remedy = "name the setting in which they differ in the arm"
            got = f"two of seed {record.seed}"
            text = sentence(primary.name, "one run of a seed in an arm", got, remedy)
            raise HarnessError(text)
    return mine


def _results(pairs: Sequence[Pairs]) -> list[Result]:
    """Judge the comparisons of one subject together."""
    if not pairs:
        return []
    ends = [(each.effects, each.primary.low, each.primary.high) for each in pairs]
    confirming = holm([within(*each) for each in ends])
    refuting = holm([beyond(*each) for each in ends])
    judged = []
    for each, yes, no in zip(pairs, confirming, refuting, strict=True):
        interval = bootstrap(median, each.effects)
        if yes <= LEVEL:
            judged.append(Result(each, interval, yes, CONFIRMED))
        elif no <= LEVEL:
            judged.append(Result(each, interval, no, REFUTED))
        else:
            judged.append(Result(each, interval, min(yes, no), UNDECIDED))
    return judged


# -- rows ------------------------------------------------------------------------------


def _row(
    experiment: Experiment, result: Result, subject: str, judged: bool
) -> dict[str, Any]:
    primary = result.pairs.primary
    return {
        "comparison": primary.name,
        "claim": primary.claim,
        "metric": primary.metric,
        "unit": metrics_of(experiment.task)[primary.metric].unit,
        "arm": _written(primary.arm),
        "against": _written(primary.against),
        "backend": subject,
        "judged": judged,
        "effect": primary.effect,
        "predicted_low": primary.low,
        "predicted_high": primary.high,
        **{k: float(v) for k, v in result.interval.columns("estimate").items()},
        "p": result.p,
        "outcome": result.outcome,
        "pairs": len(result.pairs.effects),
        "diverged": result.pairs.diverged,
        "unread": result.pairs.unread,
        "because": primary.because,
    }


def _written(arm: Arm) -> str:
    return ", ".join(f"{path} = {value}" for path, value in arm.items())
