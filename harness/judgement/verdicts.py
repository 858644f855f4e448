"""Verdicts: primary comparisons, judged by the same rule in every experiment.

Each comparison predicts an interval for an effect, paired by seed. It is

- **no difference** if the effect lies within the declared margin around 0,
- **confirmed** if the effect lies within the predicted interval,
- **refuted** if it lies beyond an end,
- **undecided** otherwise.

Each needs a one-sided exact sign-flip test at every end, and the whole confidence
interval of the median effect on the same side; an end itself is not predicted. The
p-values of a page are adjusted by Holm's procedure, separately for each of the
outcomes. The level is 0.05. The outcomes of all comparisons that answer a claim give
its verdict together: `verdict_of`.

Only one subject is judged: the experiment's first backend that has runs. The other
backends are shown but not judged, because backends are not replicates. If a setting is
tuned, they are left out: it was tuned for the first backend alone.

A diverged run has the worst value of its metric, usually infinity. In the test, an
infinite effect outweighs all finite ones. A pair in which both runs diverged has effect
0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.declarations.declare import Experiment
from harness.declarations.primaries import (
    LOG_RATIO,
    SHARE,
    SLOPE,
    Arm,
    Primary,
    matches,
)
from harness.declarations.toml_files import leaves
from harness.errors import HarnessError
from harness.records.metrics import metrics_of
from harness.records.record import Record
from harness.statistics import (
    Effect,
    beyond,
    bootstrap,
    holm,
    median,
    paired_effects,
    within,
)
from harness.tasks.cells import backend_of
from lockstep.errors import sentence

LEVEL = 0.05
CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
NO_DIFFERENCE = "no difference"
NOT_RUN, NOT_JUDGED = "not run", "not judged"
REPRODUCED, PARTLY, NOT_REPRODUCED = "reproduced", "partly", "not reproduced"


# -- a claim ---------------------------------------------------------------------------


def verdict_of(outcomes: Sequence[str], controls: Sequence[str] = ()) -> str:
    """Return the verdict on a claim, or "" if nothing was judged.

    The order of the outcomes does not matter.

    - ``reproduced``: all are confirmed.
    - ``partly``: at least one is confirmed, and at least one is not.
    - ``no difference``: all show that there is none.
    - ``not reproduced``: each is refuted or shows no difference.
    - ``undecided``: anything else, or a control is not confirmed.

    Args:
        outcomes: of all comparisons that answer the claim.
        controls: outcomes of those that show whether the runs can test it.
    """
    kinds = set(outcomes)
    if not kinds - {NOT_RUN, NOT_JUDGED}:
        return ""
    if set(controls) - {CONFIRMED}:
        return UNDECIDED
    if CONFIRMED in kinds:
        return REPRODUCED if kinds == {CONFIRMED} else PARTLY
    if kinds == {NO_DIFFERENCE}:
        return NO_DIFFERENCE
    return NOT_REPRODUCED if kinds <= {REFUTED, NO_DIFFERENCE} else UNDECIDED


def judge(primaries: Sequence[Primary], table: pd.DataFrame) -> str:
    """Return the verdict on the claim that these comparisons answer together."""
    rows = [row for row in table.to_dict("records") if row["judged"]]
    outcome = {row["comparison"]: row["outcome"] for row in rows}
    answers, controls = (
        [outcome.get(p.name, NOT_RUN) for p in primaries if p.control is control]
        for control in (False, True)
    )
    return verdict_of(answers, controls)


def notices(
    experiment: Experiment, records: Sequence[Record], table: pd.DataFrame
) -> Iterator[str]:
    """Yield what a reader must know about a verdict, in full sentences."""
    late = sum(not record.prediction for record in records)
    current = "", experiment.prediction
    other = sum(record.prediction not in current for record in records)
    for what, count in (("written", late), ("revised", other)):
        if count:
            some = "" if count == len(records) else f"{count} of "
            yield f"The predictions were {what} after {some}these runs."
    for row in table.to_dict("records"):
        if row["judged"] and row["diverged"]:
            yield (
                f"{row['comparison']}: {row['diverged']} runs diverged on "
                f"{row['backend']}. They count with the worst value of the metric."
            )
        if row["judged"] and row["unread"]:
            yield (
                f"{row['comparison']}: {row['unread']} seeds are left out on "
                f"{row['backend']}, because their records do not have the metric."
            )


# -- the comparisons -------------------------------------------------------------------


def results(experiment: Experiment, records: Sequence[Record]) -> pd.DataFrame:
    """Return the result of every primary comparison on every subject.

    The table is empty if no comparison has a pair of runs.
    """
    rows: list[dict[str, Any]] = []
    # A value is tuned on the first backend alone.
    for backend in experiment.backends[:1] if experiment.tune else experiment.backends:
        of_backend = [r for r in records if r.subject["backend"] == backend]
        for subject in sorted({backend_of(record) for record in of_backend}):
            mine = [record for record in of_backend if backend_of(record) == subject]
            pairs = [_pairs(p, experiment.task, mine) for p in experiment.primaries]
            about = {"backend": subject, "judged": not rows}
            there = [each for each in pairs if each.effects]
            rows += _judged(experiment.task, there, about)
    order = [primary.name for primary in experiment.primaries]
    rows.sort(key=lambda row: order.index(row["comparison"]))
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Pairs:
    """The effects of one comparison on one subject.

    Attributes:
        effects: one for each seed that all arms have.
        diverged: number of runs of the arms that diverged.
        unread: number of seeds left out because a record does not have the metric.
    """

    primary: Primary
    effects: tuple[float, ...] = ()
    diverged: int = 0
    unread: int = 0


def _pairs(primary: Primary, task: str, records: Sequence[Record]) -> Pairs:
    """Return the effect of each seed that all arms of a comparison have."""
    metric = metrics_of(task)[primary.metric]
    arms = _cells(primary, primary.arm, records)
    others = _cells(primary, primary.against, records) if primary.against else {}
    cells = [*arms.values(), *others.values()]
    if not cells or (primary.against and arms.keys() != others.keys()):
        return Pairs(primary)
    seeds = sorted(set.intersection(*(set(cell) for cell in cells)))
    diverged = sum(cell[s].status == "diverged" for cell in cells for s in seeds)
    mine, other = (
        np.array([[metric.read(of[key][s]) for s in seeds] for key in arms], float)
        if of
        else np.full((len(arms), len(seeds)), float(primary.effect == LOG_RATIO))
        for of in (arms, others)
    )
    there = ~np.isnan([*mine, *other]).any(axis=0)
    mine, other = mine[:, there], other[:, there]
    if not there.any():
        effects = np.array([])
    elif primary.effect == SHARE:
        sign = 1 if metric.better == "larger" else -1
        ahead = np.sign(mine - other, where=mine != other, out=np.zeros_like(mine))
        effects = (0.5 + 0.5 * sign * ahead).mean(axis=0)
    elif primary.effect == SLOPE:
        doublings = np.log2([float(value) for (value,) in arms])
        effects = np.polyfit(doublings, mine, 1)[0]
    else:
        kind: Effect = "log ratio" if primary.effect == LOG_RATIO else "difference"
        effects = paired_effects(mine[0], other[0], kind)
    return Pairs(primary, tuple(effects.tolist()), diverged, int((~there).sum()))


def _cells(
    primary: Primary, arm: Arm, records: Sequence[Record]
) -> dict[tuple[Any, ...], dict[int, Record]]:
    """Return the records of an arm by seed, for each value of ``primary.over``."""
    cells: dict[tuple[Any, ...], dict[int, Record]] = {}
    for record in records:
        if not matches(arm, record.config):
            continue
        settings = dict(leaves(record.config))
        cell = cells.setdefault(tuple(settings[path] for path in primary.over), {})
        if cell.setdefault(record.seed, record).config != record.config:
            remedy = "name the setting in which they differ in the arm"
            got = f"two of seed {record.seed}"
            text = sentence(primary.name, "one run of a seed in an arm", got, remedy)
            raise HarnessError(text)
    return {key: cells[key] for key in sorted(cells)}


def _judged(
    task: str, pairs: Sequence[Pairs], about: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Judge the comparisons of one subject together; yield a row for each.

    ``about``: the columns of the subject.
    """
    if not pairs:
        return
    predicted = [(each.effects, each.primary.low, each.primary.high) for each in pairs]
    confirming = holm([within(*each) for each in predicted])
    refuting = holm([beyond(*each) for each in predicted])
    margins = {p.primary.name: (p.effects, p.primary.margin) for p in pairs}
    tested = {name: within(e, -m, m) for name, (e, m) in margins.items() if m}
    equal = dict(zip(tested, holm([*tested.values()]), strict=True)) if tested else {}
    for each, yes, no in zip(pairs, confirming, refuting, strict=True):
        primary, interval = each.primary, bootstrap(median, each.effects)
        same = equal.get(primary.name, 1.0)
        p = {NO_DIFFERENCE: same, CONFIRMED: yes, REFUTED: no}
        outcome = _outcome(primary, float(interval.low), float(interval.high), p)
        yield {
            "comparison": primary.name,
            "claim": primary.claim,
            "metric": primary.metric,
            "unit": metrics_of(task)[primary.metric].unit,
            "arm": _written(primary.arm),
            "against": _written(primary.against),
            **about,
            "effect": primary.effect,
            "predicted_low": primary.low,
            "predicted_high": primary.high,
            "margin": primary.margin,
            "control": primary.control,
            **{k: float(v) for k, v in interval.columns("estimate").items()},
            # Of what is undecided, the smallest.
            "p": p.get(outcome, min(p.values())),
            "outcome": outcome,
            "pairs": len(each.effects),
            "diverged": each.diverged,
            "unread": each.unread,
            "because": primary.because,
        }


def _written(arm: Arm) -> str:
    return ", ".join(f"{path} = {value}" for path, value in arm.items())


def _outcome(primary: Primary, low: float, high: float, p: dict[str, float]) -> str:
    """Return the outcome whose test and whole interval agree, or ``undecided``."""
    sides = {
        NO_DIFFERENCE: -primary.margin <= low and high <= primary.margin,
        # An infinite end bounds nothing.
        CONFIRMED: (low > primary.low or math.isinf(primary.low))
        and (high < primary.high or math.isinf(primary.high)),
        REFUTED: high <= primary.low or primary.high <= low,
    }
    shown = [outcome for outcome in p if sides[outcome] and p[outcome] <= LEVEL]
    return shown[0] if shown else UNDECIDED
