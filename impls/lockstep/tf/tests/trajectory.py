"""Trajectories: the whole state of an optimizer after every step, in any mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.parity.drivers.protocol import Driver
from lockstep.interface import Array, Gradient, Rows
from lockstep.optimizers import OPTIMIZERS

Steps = Sequence[Sequence[Gradient]]

RULES: dict[str, dict[str, Any]] = {
    "GradientDescent": {"learning_rate": 0.1},
    "Momentum": {"learning_rate": 0.1, "momentum": 0.9},
    "Adam": {"learning_rate": 0.01},
    "Adagrad": {"learning_rate": 0.1},
    "RMSProp": {"learning_rate": 0.01, "momentum": 0.5},
    "Ftrl": {"learning_rate": 0.1, "l1_regularization_strength": 0.001},
    "AdamW": {"weight_decay": 0.01, "learning_rate": 0.01},
}

# Scaled ULP from the reference. Zero where TensorFlow's kernels round as the reference
# does; they use fast reciprocal roots in Adagrad, RMSProp and Ftrl, and their sparse
# Adam computes sqrt(v) in another kernel.
TOLERANCE = {"Adam": 1, "AdamW": 1, "Adagrad": 2, "RMSProp": 3, "Ftrl": 4}


class State(NamedTuple):
    """Everything that a step may change."""

    variables: list[Array]
    slots: dict[str, list[Array]]
    shared: dict[str, Array]
    global_step: int


def draw(seed: int, shapes: Sequence[tuple[int, ...]], steps: int) -> list[list[Array]]:
    """Return float32 values for the variables, then gradients for each step."""
    random = np.random.default_rng(seed)
    return [
        [random.normal(size=shape).astype(np.float32) for shape in shapes]
        for _ in range(steps + 1)
    ]


def rows(indices: Sequence[int], values: Any, *shape: int) -> Rows:
    """Return a float32 sparse gradient."""
    block = np.array(values, np.float32).reshape(len(indices), *shape[1:])
    return Rows(np.array(indices, np.int64), block, shape or None)


def replay(
    driver: Driver,
    rule: str,
    wrap: Callable[[Any], Any],
    values: Sequence[Array],
    steps: Steps,
) -> list[State]:
    """Apply ``steps`` through ``wrap(optimizer)`` and return every state."""
    return replay_listed(driver, rule, lambda opt, keys: wrap(opt), values, steps)


def replay_listed(
    driver: Driver,
    rule: str,
    wrap: Callable[[Any, list[Any]], Any],
    values: Sequence[Array],
    steps: Steps,
) -> list[State]:
    """Do the same through ``wrap(optimizer, keys)``, a key for each variable."""
    variables = [driver.variable(f"w{i}", value) for i, value in enumerate(values)]
    counter = driver.counter()
    base = driver.optimizer(rule, RULES[rule], variables)
    wrapped = wrap(base, [driver.key(variable) for variable in variables])
    step = driver.compile(
        lambda gradients: wrapped.apply_gradients(
            list(zip(gradients, variables, strict=True)), global_step=counter
        )
    )
    states = []
    for gradients in steps:
        step(gradients)
        read = [driver.read(variable) for variable in variables]
        counted = int(driver.read(counter))
        states.append(State(read, *state_of(driver, rule, base, variables), counted))
    return states


def state_of(
    driver: Driver, rule: str, base: Any, variables: Sequence[Any]
) -> tuple[dict[str, list[Array]], dict[str, Array]]:
    """Return slots and shared scalars; what is not made yet has its initial value."""
    spec = OPTIMIZERS[rule]
    bound = spec.bind((), RULES[rule])
    slots: dict[str, list[Array]] = {}
    for slot in spec.active_slots(bound):
        start = spec.initial_value(slot, bound)
        slots[slot.name] = []
        for variable in variables:
            value = driver.slot(base, variable, slot.name)
            empty = np.full_like(driver.read(variable), start)
            slots[slot.name].append(empty if value is None else value)
    shared = {
        name: np.float32(bound[beta]) for name, beta in (spec.shared or {}).items()
    }
    return slots, shared | driver.shared(base)


def leaves(state: State) -> dict[str, Array]:
    """Return the quantities of a state by name."""
    named = {f"w{i}": value for i, value in enumerate(state.variables)}
    for name, values in state.slots.items():
        named |= {f"{name}/w{i}": v for i, v in enumerate(values)}
    return named | state.shared | {"global_step": np.int64(state.global_step)}


def scaled_ulp(got: Array, expected: Array) -> float:
    """Return max |got - expected| in units of the spacing at max |expected|."""
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = np.abs(expected[finite]).max()
    distance = np.abs(got[finite].astype(np.float64) - expected[finite]).max()
    return float(distance / np.spacing(largest.astype(expected.dtype)))


def assert_same_bits(got: Sequence[State], expected: Sequence[State]) -> None:
    """Fail at the first quantity of the first step that differs in any bit."""
    for step, (left, right) in enumerate(zip(got, expected, strict=True)):
        ours, theirs = leaves(left), leaves(right)
        assert ours.keys() == theirs.keys(), f"step {step}: other quantities exist"
        for name, value in theirs.items():
            same = ours[name].tobytes() == value.tobytes()
            assert same, f"{name} after step {step}: {ours[name]}, expected {value}"


def assert_close(
    got: Sequence[State], expected: Sequence[State], within: float
) -> None:
    """Fail at the first quantity of the first step that is too far from expected."""
    for step, (left, right) in enumerate(zip(got, expected, strict=True)):
        ours, theirs = leaves(left), leaves(right)
        assert ours.keys() == theirs.keys(), f"step {step}: other quantities exist"
        for name, value in theirs.items():
            distance = scaled_ulp(np.asarray(ours[name]), np.asarray(value))
            message = f"{name} after step {step}: {ours[name]}, expected {value}"
            assert distance <= within, f"{message} ({distance} ULP, at most {within})"
