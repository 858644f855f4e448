"""Where an original raced, its recorded traces and ours are allowed; wrong ones not."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, array, read_cases
from harness.parity.families import BY_FAMILY
from harness.parity.tests.races import (
    Look,
    Race,
    backoff_race,
    either,
    is_allowed,
    traces,
)
from harness.processes.children import ROOT
from lockstep import registry
from lockstep.interface import Array
from lockstep.scalers import BackoffPolicy, BackoffState, start_automatic

BACKOFF = [
    case
    for case in read_cases(GOLDEN, ["auto_loss_scaler_backoff"])
    if "updates" in case.inputs and "raises" not in case.expected
]
INF = float("inf")
SHORT = BackoffPolicy(scale_max=8.0, step_window=2)
LOOKS = [Look(False, amax) for amax in (INF, INF, 1.0, 1.0)]


def scale_of(state: BackoffState) -> float:
    return float(state.loss_scale)


def race_of(case: Case) -> tuple[Race[BackoffState, Look], BackoffState]:
    params = case.inputs["params"] or {}
    policy = BackoffPolicy(**params, strict=True)
    return backoff_race(policy), start_automatic(policy)


def looks_of(case: Case) -> list[Look]:
    return [
        Look(entry["has_nan"], float(array(entry["amax"], "float32")))
        for entry in case.inputs["updates"]
    ]


def allows(case: Case, scales: Sequence[float]) -> bool:
    race, start = race_of(case)
    steps = zip(looks_of(case), scales, strict=True)
    return is_allowed(race, start, steps, scale_of)


def recorded_scales(case: Case) -> list[float]:
    scales = [step["loss_scale"] for step in case.expected["steps"]]
    return [float(scale) for scale in array(scales, "float32")]


@pytest.mark.parametrize("case", BACKOFF, ids=lambda case: case.id)
def test_the_recorded_trace_is_allowed(case: Case) -> None:
    assert allows(case, recorded_scales(case))


@pytest.mark.parametrize(
    "backend", [b.name for b in registry.BACKENDS.values() if b.has_strict]
)
@pytest.mark.parametrize("case", BACKOFF, ids=lambda case: case.id)
def test_the_trace_of_every_backend_is_allowed(case: Case, backend: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{backend} needs a framework that is not installed")
    states = BY_FAMILY[case.family].replay(case, drivers.load(backend))
    assert allows(case, [float(state["loss_scale"]) for state in states])


@pytest.mark.parametrize("case", BACKOFF, ids=lambda case: case.id)
def test_a_scale_that_no_order_gives_is_noticed(case: Case) -> None:
    scales = recorded_scales(case)
    for step in range(len(scales)):
        wrong = [*scales[:step], 3 * scales[step], *scales[step + 1 :]]
        assert not allows(case, wrong)


def test_growth_may_come_one_step_early_and_not_two() -> None:
    (case,) = [case for case in BACKOFF if case.kind == "window_modulo_start"]
    scales = recorded_scales(case)
    assert scales[2:7] == [512, 512, 512, 512, 1024]
    assert allows(case, [*scales[:5], 1024, *scales[6:]])
    assert not allows(case, [*scales[:4], 1024, 1024, *scales[6:]])


def test_growth_may_not_be_forgotten() -> None:
    (case,) = [case for case in BACKOFF if case.kind == "window_one"]
    assert allows(case, recorded_scales(case))
    assert not allows(case, [min(recorded_scales(case))] * len(looks_of(case)))


def test_what_is_spelled_out_is_what_is_allowed() -> None:
    race, start = backoff_race(SHORT), start_automatic(SHORT)
    spelled = traces(race, start, LOOKS, scale_of)
    some = {trace for trace in product((1.0, 2.0, 4.0, 8.0), repeat=len(LOOKS))}
    found = {
        trace
        for trace in some
        if is_allowed(race, start, zip(LOOKS, trace, strict=True), scale_of)
    }
    assert found == spelled
    assert 1 < len(spelled) < 2 ** len(LOOKS)


def test_the_page_prints_the_set() -> None:
    lines = page_of("backoff_race").splitlines()
    spelled = traces(backoff_race(SHORT), start_automatic(SHORT), LOOKS, scale_of)
    printed = [line.removesuffix("  default and strict") for line in lines]
    assert printed == [str(list(trace)) for trace in sorted(spelled, key=str)]


# -- AGN: a push has the mean or the sum -----------------------------------------------

SHARED = [
    case
    for case in read_cases(GOLDEN, ["agn"])
    if case.kind in ("one_worker", "two_workers")
    and case.optimizer == "GradientDescent"
]
Weights = tuple[float, ...]


def pushed(divisor: int, rate: float, shared: Weights, sent: Weights) -> Weights:
    """Apply what is sent, divided, by gradient descent; nothing is sent in between."""
    return tuple(w - rate * g / divisor for w, g in zip(shared, sent, strict=True))


def agn_race(case: Case) -> Race[Weights, Weights]:
    rate = case.inputs["optimizer"]["args"]["learning_rate"]
    period = case.inputs["communication_period"]
    return either(*(partial(pushed, divisor, rate) for divisor in (period, 1)))


def sums_sent(case: Case, position: int) -> Iterator[Weights]:
    """Yield, event by event, what a worker has gathered if a round ends, or zeros."""
    value = case.variables[position].value
    gathered: dict[int, list[Array]] = {}
    for event in case.inputs["events"]:
        own = gathered.setdefault(event["worker"], [])
        own.append(array(event["gradients"][position], "float64"))
        total = np.zeros(value.shape)
        if len(own) == case.inputs["communication_period"]:
            total = sum(own, total)
            own.clear()
        yield tuple(total.ravel())


def shared_traces(case: Case, position: int) -> set[tuple[Hashable, ...]]:
    """Return every trace of the shared weights of a variable."""
    start = tuple(map(float, case.variables[position].value.ravel()))
    return traces(agn_race(case), start, list(sums_sent(case, position)))


def is_near_one_of(found: Sequence[Any], allowed: set[tuple[Hashable, ...]]) -> bool:
    return any(np.allclose(found, trace, rtol=0, atol=2e-6) for trace in allowed)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "default"])
@pytest.mark.parametrize("backend", registry.BACKENDS)
@pytest.mark.parametrize("case", SHARED, ids=lambda case: case.id)
def test_what_workers_share_is_allowed(case: Case, backend: str, strict: bool) -> None:
    if strict and not registry.find(backend).has_strict:
        pytest.skip(f"{backend} has one behaviour")
    if not registry.installed(backend):
        pytest.skip(f"{backend} needs a framework that is not installed")
    states = BY_FAMILY[case.family].replay(case, drivers.load(backend, strict=strict))
    after = list(states)
    for position, variable in enumerate(case.variables):
        name = f"variables/global/{variable.name}"
        found = [state[name].ravel() for state in after]
        allowed = shared_traces(case, position)
        assert len(allowed) > 1
        assert is_near_one_of(found, allowed)
        halves = [(start := found[0]) + (value - start) / 2 for value in found]
        assert not is_near_one_of(halves, allowed)


def test_the_page_prints_both_pushes() -> None:
    (case,) = [case for case in SHARED if case.id == "agn-p-000"]
    printed = re.findall(r"\[(-.+)\]", page_of("agn_race"))
    ends = [tuple(map(float, row.split())) for row in printed]
    race, sent = agn_race(case), list(sums_sent(case, 0))[:4]
    start = tuple(map(float, case.variables[0].value))
    allowed = {trace[-1] for trace in traces(race, start, sent)}
    assert len(ends) == len(allowed) == 2
    assert all(is_near_one_of(end, allowed) for end in ends)


def page_of(script: str) -> str:
    """Return what the page says that a script prints."""
    output = ROOT / "docs" / "examples" / "differences" / f"{script}.out"
    return output.read_text("utf-8")
