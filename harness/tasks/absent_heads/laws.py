"""How far the update rule alone moves a weight, found by simulating many weights.

The gradient is 1 in the steps with the task, each with probability p, and 0 in the
others. Movement per informative step is in units of the movement per step if the task
is always present: the learning rate for Adam and RMSProp, lr / (1 - momentum) for
Momentum. What to expect after a long time:

**Zeros are fed.** Adam's m and v converge to p, so a weight moves lr / sqrt(p) per
informative step. RMSProp divides by sqrt(v) as well. Momentum is linear: 1.

**Zeros are left out.** The state depends only on the n updates of the weight, so every
rule moves 1. But Adam's bias correction counts the u steps in which any variable was
updated, because the powers of beta are shared. Until n reaches the memory of beta2, a
weight moves about sqrt(u / n). In the original (strict), u counts every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from harness.statistics import Floats

Window: TypeAlias = tuple[int, int]
"""Steps first + 1, ..., last."""

RATES = {
    ("Momentum", "momentum"): "momentum",
    ("Adam", "m"): "beta1",
    ("Adam", "v"): "beta2",
    ("RMSProp", "rms"): "decay",
}
"""The argument that multiplies a slot when a zero is fed."""

TASKS = 3
"""The number of tasks that share an optimizer."""

UPDATES, FEWEST = 4_000_000, 20
"""About how many updates are simulated, and of how many weights at least."""


def unit(optimizer: Mapping[str, Any]) -> float:
    """Return the movement per step when the task is always present, |g| = 1."""
    inertia = float(optimizer.get("momentum", 0.0))
    return float(optimizer["learning_rate"]) / (1 - inertia)


def decay(optimizer: Mapping[str, Any], slot: str) -> float:
    """Return the factor by which a slot shrinks per absent step when zeros are fed."""
    return float(optimizer[RATES[optimizer["name"], slot]])


def movement(
    optimizer: Mapping[str, Any], wrapper: str, presence: float, window: Window
) -> float:
    """Return the mean movement per informative step in a window, in :func:`unit`.

    The run starts with fresh state at step 1. NaN for an optimizer that is not
    simulated here, and for the mean over tasks, with which gradients differ in size.
    """
    plain = not (optimizer.get("use_nesterov") or optimizer.get("centered"))
    inert = optimizer["name"] == "RMSProp" and optimizer["momentum"] > 0
    known = optimizer["name"] in ("Momentum", "Adam", "RMSProp")
    if wrapper == "mean" or not (known and plain) or inert:
        return np.nan
    frozen = tuple(sorted(optimizer.items()))
    return _simulated(frozen, wrapper, presence, window) / unit(optimizer)


@cache
def _simulated(
    frozen: tuple[tuple[str, Any], ...], wrapper: str, presence: float, window: Window
) -> float:
    """Return the distance moved in a window over the informative steps in it."""
    optimizer, stream = dict(frozen), np.random.default_rng(0)
    weights = max(FEWEST, UPDATES // window[1])
    first = second = clock = np.zeros(weights)
    if optimizer["name"] == "RMSProp":
        second = np.ones(weights)
    distance, informative = 0.0, 0
    for step in range(window[1]):
        present = stream.random((TASKS, weights)) < presence
        mine = present[0]
        updated = np.full(weights, True) if wrapper == "none" else mine
        clock = clock + (present.any(axis=0) if wrapper == "default" else 1)
        gradient = mine.astype(float)
        new_first, new_second, moved = _update(
            optimizer, first, second, gradient, clock
        )
        first = np.where(updated, new_first, first)
        second = np.where(updated, new_second, second)
        if step >= window[0]:
            distance += float(moved[updated].sum())
            informative += int(mine.sum())
    return distance / informative


def _update(
    optimizer: Mapping[str, Any],
    first: Floats,
    second: Floats,
    gradient: Floats,
    clock: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Return both moments and the movement of a step, by TensorFlow 1's equations."""
    rate = optimizer["learning_rate"]
    if optimizer["name"] == "Momentum":
        first = optimizer["momentum"] * first + gradient
        return first, second, rate * first
    if optimizer["name"] == "RMSProp":
        second = optimizer["decay"] * second + (1 - optimizer["decay"]) * gradient**2
        return first, second, rate * gradient / np.sqrt(second)
    b1, b2 = optimizer["beta1"], optimizer["beta2"]
    first = b1 * first + (1 - b1) * gradient
    second = b2 * second + (1 - b2) * gradient**2
    clock = np.maximum(clock, 1)
    corrected = rate * np.sqrt(1 - b2**clock) / (1 - b1**clock)
    # Before the first gradient both moments are 0.
    return first, second, corrected * first / np.sqrt(np.maximum(second, 1e-30))
