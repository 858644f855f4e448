"""One rule judges all experiments: each verdict can be reached, by its runs alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.declarations.declare import Experiment, Run
from harness.declarations.primaries import Arm, Primary, matches
from harness.errors import HarnessError
from harness.judgement import verdicts
from harness.judgement.verdicts import verdict_of
from harness.records.metrics import metrics_of
from harness.records.record import Record
from harness.tests.makers import made_up, with_metric

JUDGED = [name for name in declare.known() if not declare.find(name).reason]
BASE = 0.3
"""The metric of the arm that others are compared with."""

NOISE = 0.001

find = cache(declare.find)


@cache
def arm_records(name: str) -> tuple[Record, ...]:
    """Records of every arm that a comparison names, at the published scale."""
    experiment, rng = find(name), np.random.default_rng(0)
    named = [arm for p in experiment.primaries for arm in (p.arm, p.against) if arm]
    runs = [
        Run(name, experiment.task, config, seed)
        for config in experiment.full_arms("std")
        for seed in range(experiment.scale("std").seeds)
        if any(matches(arm, config) for arm in named)
    ]
    return tuple(made_up(run, experiment.backends[0], rng) for run in runs)


def effect_of(primary: Primary, outcome: str, seed: int) -> float:
    """Return an effect of one seed; those of all seeds lead to the outcome."""
    low, high = primary.low, primary.high
    finite, inward = (low, 1) if math.isfinite(low) else (high, -1)
    # Above 0.1: a margin of 0.05 is then exceeded in either direction.
    size = min(0.15, (high - low) / 2)
    aside = {"confirmed": size, "refuted": -size, "undecided": size * (-1) ** seed}
    return finite + inward * aside[outcome] + NOISE * np.sin(seed)


def showing(
    name: str, outcomes: Sequence[str], experiment: Experiment | None = None
) -> list[Record]:
    """Return records in which each comparison has the outcome that is asked for.

    An arm may be in several comparisons: what it got in an earlier one it keeps, and
    the other arm of a later one is chosen after it.
    """
    experiment, records = experiment or find(name), list(arm_records(name))
    seeds = {record.seed for record in records}
    values: dict[tuple[str, str], dict[int, float]] = {}

    def settle(metric: str, arm: Mapping[str, Any], by_seed: dict[int, float]) -> None:
        values[metric, str(arm)] = by_seed
        for k, record in enumerate(records):
            if matches(arm, record.config):
                records[k] = with_metric(record, metric, by_seed[record.seed])

    for primary, outcome in zip(experiment.primaries, outcomes, strict=True):
        metric, arm, against = primary.metric, primary.arm, primary.against
        effects = {seed: effect_of(primary, outcome, seed) for seed in seeds}
        own = values.get((metric, str(arm)))
        if own is not None and against:
            settle(
                metric, against, {s: shifted(primary, own[s], -effects[s]) for s in own}
            )
            continue
        if against and (metric, str(against)) not in values:
            settle(metric, against, dict.fromkeys(seeds, BASE))
        neutral = 1.0 if primary.effect == "log ratio" else 0.0
        bases = values.get((metric, str(against)), dict.fromkeys(seeds, neutral))
        settle(metric, arm, {s: shifted(primary, bases[s], effects[s]) for s in seeds})
    return records


def shifted(primary: Primary, base: float, effect: float) -> float:
    """Return the metric that has an effect against ``base``."""
    return base * math.exp(effect) if primary.effect == "log ratio" else base + effect


def judged(experiment: Experiment, records: Sequence[Record]) -> str:
    return verdicts.judge(experiment, verdicts.results(experiment, records))


SCENARIOS: Mapping[str, tuple[str, str]] = {
    "reproduced": ("confirmed", "confirmed"),
    "partly": ("confirmed", "refuted"),
    "not reproduced": ("refuted", "confirmed"),
    "undecided": ("undecided", "undecided"),
}
"""The outcome of the first comparison, and of all others."""


@pytest.mark.parametrize(("name", "verdict"), list(product(JUDGED, SCENARIOS)))
def test_every_experiment_can_reach_every_verdict(name: str, verdict: str) -> None:
    first, others = SCENARIOS[verdict]
    experiment = find(name)
    outcomes = [first, *[others] * (len(experiment.primaries) - 1)]
    assert judged(experiment, showing(name, outcomes)) == verdict


def directed_of(name: str) -> list[Primary]:
    """Return the comparisons of two arms that would be others if these were swapped."""
    primaries = find(name).primaries
    return [p for p in primaries if p.against and p.low != -p.high]


DIRECTED = [name for name in JUDGED if directed_of(name)]


@pytest.mark.parametrize("name", DIRECTED)
def test_swapped_arms_are_refuted(name: str) -> None:
    experiment, directed = find(name), directed_of(name)
    records = showing(name, ["confirmed"] * len(experiment.primaries))
    swapped = [
        dataclasses.replace(p, arm=p.against, against=p.arm) if p in directed else p
        for p in experiment.primaries
    ]
    other = dataclasses.replace(experiment, primaries=swapped)
    assert judged(other, records) != "reproduced"
    table = verdicts.results(other, records).set_index("comparison")
    for primary in directed:
        assert table.loc[primary.name, "outcome"] == "refuted"


@pytest.mark.parametrize("name", JUDGED)
def test_backends_are_no_replicates(name: str) -> None:
    """Half of the seeds on one backend and half on another decide nothing together."""
    experiment = dataclasses.replace(find(name), backends=("pytorch", "tf"))
    records = showing(name, ["confirmed"] * len(experiment.primaries))
    split = [
        dataclasses.replace(
            record,
            subject={**record.subject, "backend": ("pytorch", "tf")[record.seed >= 3]},
        )
        for record in records
    ]
    table = verdicts.results(experiment, split)
    assert set(table[table["judged"]]["pairs"]) == {3}
    assert judged(experiment, split) == "undecided"


# -- the rule --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (["confirmed"], "reproduced"),
        (["confirmed", "undecided"], "partly"),
        (["undecided", "confirmed"], "partly"),
        (["confirmed", "not run"], "partly"),
        (["refuted", "confirmed"], "not reproduced"),
        (["refuted", "undecided"], "not reproduced"),
        (["not run", "refuted"], "not reproduced"),
        (["undecided", "refuted"], "undecided"),
        (["not run", "undecided"], "undecided"),
        (["not run", "not run"], ""),
    ],
)
def test_the_first_comparison_is_decisive(outcomes: list[str], verdict: str) -> None:
    assert verdict_of(outcomes) == verdict


@pytest.fixture
def losses() -> Experiment:
    """One comparison: with Adam, the loss without the wrapper is higher."""
    experiment = find("absent_tasks")
    return dataclasses.replace(experiment, primaries=experiment.primaries[:1])


def of_arm(arm: Arm, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if matches(arm, record.config)]


def diverged(record: Record) -> Record:
    ended: dict[str, object] = {"status": "diverged", "series": {}, "summary": {}}
    return dataclasses.replace(record, **ended)  # type: ignore[arg-type]


def test_a_run_that_diverged_counts_as_the_worst(losses: Experiment) -> None:
    (primary,) = losses.primaries
    records = showing("absent_tasks", ["confirmed"], losses)
    lost = [diverged(r) if matches(primary.arm, r.config) else r for r in records]
    table = verdicts.results(losses, lost)
    (row,) = table.to_dict("records")
    assert (row["estimate"], row["outcome"], row["diverged"]) == (
        math.inf,
        "confirmed",
        20,
    )
    said = list(verdicts.notices(losses, lost, table))
    assert any("20 runs diverged on pytorch" in sentence for sentence in said)
    # On both sides, neither arm is better.
    table = verdicts.results(losses, [diverged(record) for record in records])
    assert table["estimate"].tolist() == [0.0]
    assert table["outcome"].tolist() == ["undecided"]


@pytest.mark.parametrize(
    ("of_arm_alone", "outcome"), [(True, "confirmed"), (False, "undecided")]
)
def test_runs_that_diverge_outweigh_all_others(
    losses: Experiment, of_arm_alone: bool, outcome: str
) -> None:
    """Ten of twenty runs of an arm, or five of each arm in different seeds."""
    (primary,) = losses.primaries
    records = showing("absent_tasks", ["undecided"], losses)
    mixed = [
        diverged(r)
        if r.seed < 10
        and matches(primary.arm, r.config) == (of_arm_alone or r.seed % 2 == 0)
        and matches(primary.arm, r.config) | matches(primary.against, r.config)
        else r
        for r in records
    ]
    table = verdicts.results(losses, mixed)
    assert table["diverged"].tolist() == [10]
    assert table["outcome"].tolist() == [outcome]


def test_a_record_without_the_metric_is_left_out_and_counted() -> None:
    experiment = find("recommender")
    records = [
        dataclasses.replace(record, summary={}) if record.seed == 0 else record
        for record in showing("recommender", ["confirmed"] * 5)
    ]
    table = verdicts.results(experiment, records).set_index("comparison")
    assert table.loc["serving", "pairs"] == 9
    said = list(verdicts.notices(experiment, records, table.reset_index()))
    assert any("serving: 1 seeds are left out" in each for each in said)


def test_seeds_that_only_one_arm_has_are_left_out(losses: Experiment) -> None:
    (primary,) = losses.primaries
    records = showing("absent_tasks", ["confirmed"], losses)
    kept = [r for r in records if r.seed != 0 or not matches(primary.arm, r.config)]
    assert verdicts.results(losses, kept)["pairs"].tolist() == [19]


def test_without_runs_nothing_is_judged_and_missing_arms_are_named() -> None:
    experiment = find("absent_tasks")
    assert verdicts.results(experiment, []).empty
    assert judged(experiment, []) == ""
    adam = [r for r in arm_records("absent_tasks") if "Adam" in str(r.config)]
    table = verdicts.results(experiment, adam)
    said = list(verdicts.notices(experiment, adam, table))
    assert any("no runs yet for loss-rmsprop, loss-momentum" in each for each in said)


def test_two_runs_of_a_seed_in_one_arm_are_refused(losses: Experiment) -> None:
    records = showing("absent_tasks", ["confirmed"], losses)
    twice = [
        dataclasses.replace(r, config={**r.config, "hidden": 64})
        for r in of_arm(losses.primaries[0].arm, records)
    ] + records
    with pytest.raises(HarnessError, match="loss-adam: expected one run of a seed"):
        verdicts.results(losses, twice)


@pytest.mark.parametrize("name", JUDGED)
def test_every_metric_of_a_comparison_reads_what_a_run_wrote(name: str) -> None:
    experiment = find(name)
    for primary in experiment.primaries:
        record = of_arm(primary.arm, arm_records(name))[0]
        changed = with_metric(record, primary.metric, 0.125)
        read = metrics_of(experiment.task)[primary.metric].read
        assert read(changed) == pytest.approx(0.125)
