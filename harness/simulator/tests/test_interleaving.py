"""The simulator's AGN in a fixed order of events, against recordings and the reference.

It shares the base rules with the reference, and nothing else: what is gathered, sent,
applied and pulled is written twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from harness.parity.cases import GOLDEN, Case, gradient, read_cases
from harness.parity.distance import distance
from harness.parity.families import agn
from harness.simulator.methods import AGN, Rule
from harness.simulator.tests.interleaving import interleave
from lockstep import reference
from lockstep.interface import Array, Gradient, Rows

CASES = [case for case in read_cases(GOLDEN, ["agn"]) if "events" in case.inputs]

Events = list[tuple[int, dict[str, Gradient]]]


def replayed(case: Case) -> Iterator[dict[str, Array]]:
    """Yield the quantities of each event under the names that the family gives them."""
    recorded = case.variables
    arguments = case.inputs["optimizer"].get("args", {})
    rule = Rule(case.optimizer, **arguments, strict=True)
    method = AGN(rule, case.inputs["communication_period"])
    weights = {v.name: v.value for v in recorded}
    events: Events = [
        (
            e["worker"],
            dict(zip(weights, map(gradient, e["gradients"], recorded), strict=True)),
        )
        for e in case.inputs["events"]
    ]
    states = interleave(method, weights, case.inputs["num_workers"], events)
    for (number, _), state in zip(events, states, strict=True):
        worker, server = state.workers[number], state.server
        found: dict[str, Array] = {"global_step/global": np.array(state.versions)}
        for where, holder in (("local", worker), ("global", server)):
            for name, value in holder.weights.items():
                found[f"variables/{where}/{name}"] = value
                for slot, array in holder.state.slots[name].items():
                    found[f"slots/{slot}/{where}/{name}"] = array
        for name, value in worker.gathered.items():
            found[f"accumulators/local/{name}"] = value
        for name, value in worker.state.shared.items():
            found[f"non_slots/{name}/local"] = value
        yield found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_simulator_replays_the_recordings_to_the_bit(case: Case) -> None:
    left_out = ("local_step/", "worker", "global at first")
    for number, (got, expected) in enumerate(
        zip(replayed(case), agn.expectations(case), strict=True)
    ):
        for name, value in expected.items():
            if not any(part in name for part in left_out):
                apart = distance(got[name], value).ulp
                assert apart == 0, f"{name} after event {number + 1}"


def some_gradient(generator: np.random.Generator, sparse: bool) -> Gradient:
    if generator.random() < 0.25:
        return None
    values = generator.normal(size=(3, 2)).astype(np.float32)
    if not sparse:
        return values
    return Rows(generator.integers(3, size=3), values, (3, 2))


def some_events(seed: int, workers: int) -> Events:
    """Draw who steps, and on what: absent, dense and sparse gradients."""
    generator = np.random.default_rng(seed)
    events: Events = []
    while len(events) < 40:
        drawn = {k: some_gradient(generator, k == "table") for k in ("w", "table")}
        if any(g is not None for g in drawn.values()):
            events.append((int(generator.integers(workers)), drawn))
    return events


RULES: dict[str, dict[str, Any]] = {
    "GradientDescent": {"learning_rate": 0.1},
    "Momentum": {"learning_rate": 0.1, "momentum": 0.9, "use_nesterov": True},
    "Adam": {"learning_rate": 0.1},
    "Adagrad": {"learning_rate": 0.1},
}


@pytest.mark.parametrize("commit", ["gradient", "delta"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_the_simulator_is_the_reference_for_any_order_of_events(
    seed: int, rule: str, commit: str
) -> None:
    workers, period, events = 3, 4, some_events(seed, 3)
    start = {name: np.full((3, 2), 0.5, np.float32) for name in ("w", "table")}
    center = None
    made = []
    for _ in range(workers):
        getter = reference.AGNCustomGetter("/cpu:0", center)
        center = getter.center
        variables = getter([reference.Variable(n, w) for n, w in start.items()])
        base = getattr(reference, f"{rule}Optimizer")(**RULES[rule])
        optimizer = reference.AGNOptimizer(base, 3, getter, period, commit=commit)
        made.append((optimizer, variables))
    method = AGN(Rule(rule, **RULES[rule]), period, commit)
    for (number, drawn), state in zip(
        events, interleave(method, start, workers, events), strict=True
    ):
        optimizer, variables = made[number]
        optimizer.apply_gradients([(drawn[v.name], v) for v in variables])
        assert center is not None
        for variable in variables:
            name = variable.name
            assert np.array_equal(state.workers[number].weights[name], variable.value)
            shared = center.variables[name].value
            assert np.array_equal(state.server.weights[name], shared)
