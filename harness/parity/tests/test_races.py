"""Where an original raced, its recorded traces and ours are allowed; wrong ones not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import pytest

from harness.parity.cases import GOLDEN, Case, array, read_cases
from harness.parity.families import BUILT
from harness.parity.races import (
    Look,
    Race,
    backoff_race,
    either,
    is_allowed,
    traces,
)
from harness.processes import ROOT
from lockstep import registry
from lockstep.reference.backoff import BackoffState, start_backoff
from lockstep.spec.automatic_scaler import BackoffPolicy

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
    policy = BackoffPolicy(**params, nan_overflows=False)
    return backoff_race(policy), start_backoff(policy)


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


@pytest.mark.parametrize("backend", registry.BACKENDS)
@pytest.mark.parametrize("case", BACKOFF, ids=lambda case: case.id)
def test_the_trace_of_every_backend_is_allowed(case: Case, backend: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{backend} needs a framework that is not installed")
    states = BUILT[case.family].replay(case, registry.host(backend))
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
    race, start = backoff_race(SHORT), start_backoff(SHORT)
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
    output = ROOT / "docs" / "examples" / "differences" / "backoff_race.out"
    lines = output.read_text("utf-8").splitlines()
    spelled = traces(backoff_race(SHORT), start_backoff(SHORT), LOOKS, scale_of)
    printed = [line.removesuffix("  default and strict") for line in lines]
    assert printed == [str(list(trace)) for trace in sorted(spelled, key=str)]


Row = tuple[float, ...]


def pushed(divisor: int, shared: Row, gradients: tuple[Row, ...]) -> Row:
    """Apply what is sent of a worker's gradients by gradient descent at rate 0.5."""
    sent = [sum(column) / divisor for column in zip(*gradients, strict=True)]
    return tuple(w - 0.5 * g for w, g in zip(shared, sent, strict=True))


def test_each_push_of_agn_has_the_mean_or_the_sum() -> None:
    race, start = either(partial(pushed, 2), partial(pushed, 1)), (4.0, 4.0)
    pushes = [((1.0, 2.0), (3.0, 6.0)), ((0.0, 2.0), (2.0, 0.0))]
    means = ((3.0, 2.0), (2.5, 1.5))
    allowed = traces(race, start, pushes)
    assert means in allowed
    assert len(allowed) == 4
    assert is_allowed(race, start, zip(pushes, means, strict=True))
    half = ((3.5, 3.0), (3.0, 2.5))
    assert not is_allowed(race, start, zip(pushes, half, strict=True))
