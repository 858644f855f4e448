"""One rule judges all experiments: each verdict can be reached, by its runs alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cache
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


# -- the rule --------------------------------------------------------------------------

YES, NO, SAME, OPEN = "confirmed", "refuted", "no difference", "undecided"


@pytest.mark.parametrize(
    ("outcomes", "controls", "verdict"),
    [
        ([YES, YES], [], "reproduced"),
        ([YES], [YES], "reproduced"),
        ([YES, NO], [], "partly"),
        ([YES, SAME], [], "partly"),
        ([YES, OPEN], [], "partly"),
        ([YES, "not run"], [], "partly"),
        ([NO, NO], [], "not reproduced"),
        ([NO, SAME], [], "not reproduced"),
        ([SAME, SAME], [], "no difference"),
        ([NO, OPEN], [], "undecided"),
        ([SAME, OPEN], [], "undecided"),
        ([NO, "not run"], [], "undecided"),
        ([YES], [NO], "undecided"),
        ([YES], [YES, OPEN], "undecided"),
        ([NO], ["not run"], "undecided"),
        (["not run", "not judged"], [], ""),
        (["not run"], [YES], ""),
    ],
)
def test_all_outcomes_give_the_verdict_in_any_order(
    outcomes: list[str], controls: list[str], verdict: str
) -> None:
    assert verdict_of(outcomes, controls) == verdict
    assert verdict_of(outcomes[::-1], controls[::-1]) == verdict


ALTERNATING = [0.02 * (-1) ** seed for seed in range(20)]


@pytest.mark.parametrize(
    ("effects", "outcome"),
    [
        ([0.2 + e for e in ALTERNATING], YES),
        ([-0.2 + e for e in ALTERNATING], NO),
        (ALTERNATING, OPEN),
        ([e / 10 for e in ALTERNATING], SAME),
        ([0.005 + e / 10 for e in ALTERNATING], SAME),
        # The test is significant, but the interval of the median reaches the end.
        ([0.0] * 11 + [1.0] * 9, OPEN),
    ],
)
def test_an_outcome_needs_the_test_and_the_interval(
    losses: Experiment, effects: list[float], outcome: str
) -> None:
    primary = losses.primaries[0].model_copy(update={"margin": 0.01})
    experiment = losses.model_copy(update={"primaries": (primary,)})
    records = with_effects(experiment, dict(enumerate(effects)))
    assert verdicts.results(experiment, records)["outcome"].tolist() == [outcome]


def of_workers(name: str, accuracies: Mapping[tuple[str, int], float]) -> str:
    """Return the estimate of a comparison if all seeds have these accuracies."""
    experiment = find("asynchronous_workers")
    records = [
        with_metric(
            made_up(run, "reference", np.random.default_rng(0)),
            primary.metric,
            accuracies.get((run.config["method"], run.config["period"]), 0.5),
        )
        for primary in experiment.primaries
        if primary.name == name
        for run in experiment.runs("std")
        if matches(primary.arm, run.config) or matches(primary.against, run.config)
    ]
    table = verdicts.results(experiment, records).set_index("comparison")
    return f"{table.loc[name, 'estimate']:.4f}"


def test_a_share_counts_the_settings_in_which_an_arm_is_ahead() -> None:
    # Ahead at one of five periods, behind at one, and equal at three.
    accuracies = {("agn-delta", 1): 0.9, ("easgd", 5): 0.9}
    assert of_workers("ahead-of-easgd", accuracies) == "0.5000"
    assert of_workers("ahead-of-easgd", {("agn-delta", 1): 0.9}) == "0.6000"


def test_a_slope_is_the_change_per_doubling_of_a_setting() -> None:
    line = {("agn-delta", p): 0.9 - 0.01 * np.log2(p) for p in (1, 5, 10, 20, 40)}
    assert of_workers("agn-does-not", line) == "-0.0100"


@pytest.mark.parametrize("tuned", [True, False])
def test_backends_at_rates_tuned_for_another_are_not_compared(tuned: bool) -> None:
    experiment = find("absent_tasks_tuned")
    records = showing("absent_tasks_tuned", [YES] * len(experiment.primaries))
    other = [
        dataclasses.replace(r, subject={**r.subject, "backend": "keras3"})
        for r in records
    ]
    both = experiment.model_copy(update={} if tuned else {"tune": None})
    table = verdicts.results(both, [*records, *other])
    assert ("keras3" in set(table["backend"])) is not tuned


@pytest.fixture
def losses() -> Experiment:
    """One comparison: with Adam, the loss without the wrapper is higher."""
    experiment = find("absent_tasks")
    rare: dict[str, Any] = {"presence": 0.02, "optimizer.name": "Adam"}
    primary = Primary(
        name="loss-adam",
        claim="It is higher.",
        metric="loss",
        arm={"wrapper": "none", **rare},
        effect="log ratio",
        because="a test",
        against={"wrapper": "default", **rare},
        low=0.0,
    )
    return experiment.model_copy(update={"primaries": (primary,)})


def with_effects(experiment: Experiment, effects: Mapping[int, float]) -> list[Record]:
    """Return records of one comparison's arms with these effects by seed."""
    (primary,) = experiment.primaries
    return [
        with_metric(
            record,
            primary.metric,
            shifted(primary, BASE, effects[record.seed])
            if matches(primary.arm, record.config)
            else BASE,
        )
        for record in arm_records(experiment.name)
        if matches(primary.arm, record.config)
        or matches(primary.against, record.config)
    ]


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
    empty = verdicts.results(experiment, [])
    assert verdicts.judge(experiment.primaries, empty) == ""
    adam = [r for r in arm_records("absent_tasks") if "Adam" in str(r.config)]
    table = verdicts.results(experiment, adam)
    said = list(verdicts.notices(experiment, adam, table))
    assert any("no runs yet for" in each and "heads-momentum" in each for each in said)


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
