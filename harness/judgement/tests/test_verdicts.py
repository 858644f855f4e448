"""One rule judges all experiments: each verdict can be reached, by its runs alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.declarations.declare import Experiment
from harness.declarations.primaries import Primary, matches
from harness.errors import HarnessError
from harness.judgement import verdicts
from harness.judgement.verdicts import verdict_of
from harness.records.record import Record
from harness.tests.makers import made_up, with_metric

BASE = 0.3
"""The metric of the arm that others are compared with."""

YES, NO, SAME, OPEN = "confirmed", "refuted", "no difference", "undecided"
RARE: dict[str, Any] = {"presence": 0.02, "optimizer.name": "Adam"}
LOSS = Primary(
    name="loss-adam",
    claim="It is higher.",
    metric="loss",
    arm={"wrapper": "none", **RARE},
    effect="log ratio",
    because="a test",
    against={"wrapper": "default", **RARE},
    low=0.0,
    margin=0.01,
)


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


@pytest.fixture(scope="module")
def losses() -> Experiment:
    """One comparison: with Adam, the loss without the wrapper is higher."""
    return declare.find("absent_tasks").model_copy(update={"primaries": (LOSS,)})


@pytest.fixture(scope="module")
def runs(losses: Experiment) -> list[Record]:
    """Records of its two arms, 20 seeds each."""
    rng = np.random.default_rng(0)
    return [
        made_up(run, "pytorch", rng)
        for run in losses.runs("std")
        if matches(LOSS.arm, run.config) or matches(LOSS.against, run.config)
    ]


def with_effects(runs: Sequence[Record], effects: Sequence[float]) -> list[Record]:
    """Return the records with these effects by seed."""
    return [
        with_metric(r, "loss", BASE * math.exp(effects[r.seed] * is_arm(r)))
        for r in runs
    ]


def is_arm(record: Record) -> bool:
    return matches(LOSS.arm, record.config)


def diverged(records: Sequence[Record], of: Callable[[Record], bool]) -> list[Record]:
    ended: dict[str, Any] = {"status": "diverged", "series": {}, "summary": {}}
    return [dataclasses.replace(r, **ended) if of(r) else r for r in records]


def result(experiment: Experiment, records: Sequence[Record]) -> Mapping[Any, Any]:
    (row,) = verdicts.results(experiment, records).to_dict("records")
    return row


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
    losses: Experiment, runs: list[Record], effects: list[float], outcome: str
) -> None:
    assert result(losses, with_effects(runs, effects))["outcome"] == outcome


def of_workers(name: str, accuracies: Mapping[tuple[str, int], float]) -> float:
    """Return the estimate of a comparison if all seeds have these accuracies."""
    experiment = declare.find("asynchronous_workers")
    (primary,) = (each for each in experiment.primaries if each.name == name)
    records = [
        with_metric(
            made_up(run, "reference", np.random.default_rng(0)),
            primary.metric,
            accuracies.get((run.config["method"], run.config["period"]), 0.5),
        )
        for run in experiment.runs("std")
        if matches(primary.arm, run.config) or matches(primary.against, run.config)
    ]
    table = verdicts.results(experiment, records).set_index("comparison")
    return float(table.loc[name, "estimate"])


def test_a_share_counts_the_settings_in_which_an_arm_is_ahead() -> None:
    # Ahead at one of five periods, behind at one, and equal at three.
    accuracies = {("agn-delta", 1): 0.9, ("easgd", 5): 0.9}
    assert of_workers("ahead-of-easgd", accuracies) == 0.5
    assert of_workers("ahead-of-easgd", {("agn-delta", 1): 0.9}) == 0.6


def test_a_slope_is_the_change_per_doubling_of_a_setting() -> None:
    line = {("agn-delta", p): 0.9 - 0.01 * np.log2(p) for p in (1, 5, 10, 20, 40)}
    assert of_workers("agn-does-not", line) == pytest.approx(-0.01)


@pytest.mark.parametrize("tuned", [True, False])
def test_only_the_first_backend_is_judged_and_no_rates_of_another_are_compared(
    tuned: bool, losses: Experiment, runs: list[Record]
) -> None:
    records = with_effects(runs, [0.2] * 20)
    records += [
        dataclasses.replace(r, subject={**r.subject, "backend": "tf"}) for r in records
    ]
    tune = declare.find("absent_tasks_tuned").tune if tuned else None
    table = verdicts.results(losses.model_copy(update={"tune": tune}), records)
    judged = {"pytorch": True} if tuned else {"pytorch": True, "tf": False}
    assert dict(zip(table["backend"], table["judged"], strict=True)) == judged


def test_a_run_that_diverged_counts_as_the_worst(
    losses: Experiment, runs: list[Record]
) -> None:
    records = with_effects(runs, [0.2] * 20)
    lost = diverged(records, is_arm)
    row = result(losses, lost)
    assert (row["estimate"], row["outcome"], row["diverged"]) == (math.inf, YES, 20)
    notices = list(verdicts.notices(losses, lost, verdicts.results(losses, lost)))
    assert any("20 runs diverged on pytorch" in sentence for sentence in notices)
    # On both sides, neither arm is better.
    row = result(losses, diverged(records, lambda record: True))
    assert (row["estimate"], row["outcome"]) == (0.0, SAME)


@pytest.mark.parametrize("one_arm", [True, False])
def test_runs_that_diverge_outweigh_all_others(
    losses: Experiment, runs: list[Record], one_arm: bool
) -> None:
    """Ten of twenty runs of an arm, or five of each arm in different seeds."""

    def ends(record: Record) -> bool:
        return record.seed < 10 and is_arm(record) == (one_arm or record.seed % 2 == 0)

    row = result(losses, diverged(with_effects(runs, ALTERNATING), ends))
    assert (row["diverged"], row["outcome"]) == (10, YES if one_arm else OPEN)


def test_a_seed_that_cannot_be_compared_is_left_out(
    losses: Experiment, runs: list[Record]
) -> None:
    records = with_effects(runs, [0.2] * 20)
    unread = [r if r.seed else with_metric(r, "loss", math.nan) for r in records]
    assert (result(losses, unread)["pairs"], result(losses, unread)["unread"]) == (
        19,
        1,
    )
    notices = verdicts.notices(losses, unread, verdicts.results(losses, unread))
    assert any("loss-adam: 1 seeds are left out" in each for each in notices)
    alone = [r for r in records if r.seed or not is_arm(r)]
    assert result(losses, alone)["pairs"] == 19


def test_without_runs_nothing_is_judged(losses: Experiment, runs: list[Record]) -> None:
    empty = verdicts.results(losses, [])
    assert empty.empty and verdicts.judge(losses.primaries, empty) == ""
    other = LOSS.model_copy(update={"name": "b", "arm": {"wrapper": "strict"}})
    both = losses.model_copy(update={"primaries": (LOSS, other)})
    table = verdicts.results(both, runs)
    assert verdicts.judge(both.primaries, table) in ("undecided", "partly")


def test_two_runs_of_a_seed_in_one_arm_are_refused(
    losses: Experiment, runs: list[Record]
) -> None:
    other = [dataclasses.replace(r, config={**r.config, "hidden": 64}) for r in runs]
    with pytest.raises(HarnessError, match="loss-adam: expected one run of a seed"):
        verdicts.results(losses, [*runs, *other])
