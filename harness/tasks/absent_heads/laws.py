r"""The movement of a weight per informative step, in closed form.

The gradient is g in steps with the task (probability p, independently in each step),
where B_t = 1. It is 0 in the other steps, where B_t = 0. Movement is in units of the
movement per step if the task is always present: the learning rate for Adam and RMSProp
(|g| = 1), lr / (1 - momentum) for Momentum.

**Zeros are fed.** Adam moves a_t m_t / sqrt(v_t), where a_t corrects the bias of the
moving averages m_t = (1 - b1) sum_j b1^j B_{t-j} and v_t = (1 - b2) sum_j b2^j B_{t-j}.
Both depend on the same past steps, but with

    v^(-1/2) = pi^(-1/2) integral_0^inf s^(-1/2) exp(-s v) ds

the expectation becomes a product over ages j, with w_j = (1 - b2) b2^j:

    E[B_{t-k} exp(-s v_t)] = p exp(-s w_k) prod_{j != k} (1 - p + p exp(-s w_j)).

So E[m_t / sqrt(v_t)] is one integral for each t, exact for any p and t. For large t and
long memories, v and m converge to p, so Adam moves lr / sqrt(p) per informative step.
RMSProp is the case b1 = 0 without bias correction and with v_0 = 1:
E[(d V + 1 - d)^(-1/2)] in the limit. Momentum is linear: 1 in the limit.

**Zeros are left out.** The state depends only on the n updates of the weight. So only
the effect of the start remains: Momentum moves 1 - mu^n and RMSProp 1. Adam would move
1, but its bias correction counts the steps u in which *any* variable was updated,
because the powers of beta are shared:

    (1 - b1^n) / (1 - b1^u) * sqrt((1 - b2^u) / (1 - b2^n)).

Until n reaches the memory of b2, this is near sqrt(u / n) > 1. In the original
(strict), u counts every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Window: TypeAlias = tuple[int, int]
"""Steps first + 1, ..., last."""

RATES = {
    ("Momentum", "momentum"): "momentum",
    ("Adam", "m"): "beta1",
    ("Adam", "v"): "beta2",
    ("RMSProp", "rms"): "decay",
}
"""The argument that multiplies a slot when a zero is fed."""

NODE_DISTANCE = 0.5
MEMORIES = 20.0
NODES = 400


def unit(optimizer: Mapping[str, Any]) -> float:
    """Return the movement per step when the task is always present, |g| = 1."""
    return float(optimizer["learning_rate"]) / (1 - _inertia(optimizer))


def decay(optimizer: Mapping[str, Any], slot: str) -> float:
    """Return the factor by which a slot shrinks per absent step when zeros are fed."""
    return float(optimizer[RATES[optimizer["name"], slot]])


def movement(
    optimizer: Mapping[str, Any], wrapper: str, presence: float, window: Window
) -> float:
    """Return the expected movement in a window per expected informative step.

    The run starts with fresh state at step 1; three tasks share the optimizer. In
    units of :func:`unit`. NaN for an optimizer without a law here, and for the mean
    over tasks, with which gradients differ in size.
    """
    if wrapper == "mean" or not _has_law(optimizer):
        return np.nan
    if wrapper == "none":
        steps = _fed_zeros(_frozen(optimizer), presence, window[1])
        return float(steps[window[0] :].mean() / presence)
    clock = 1.0 if wrapper == "strict" else 1 - (1 - presence) ** 3
    return _left_out(_frozen(optimizer), presence, clock, window)


def _has_law(optimizer: Mapping[str, Any]) -> bool:
    plain = not (optimizer.get("use_nesterov") or optimizer.get("centered"))
    rms_inertia = optimizer["name"] == "RMSProp" and optimizer["momentum"] > 0
    return optimizer["name"] in ("Momentum", "Adam", "RMSProp") and (
        plain and not rms_inertia
    )


def _inertia(optimizer: Mapping[str, Any]) -> float:
    return float(optimizer.get("momentum", 0.0))


def _frozen(optimizer: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(optimizer.items()))


@cache
def _fed_zeros(
    frozen: tuple[tuple[str, Any], ...], presence: float, steps: int
) -> Floats:
    """Return the expected movement in each of the steps 1, ..., ``steps``."""
    optimizer, t = dict(frozen), np.arange(1, steps + 1)
    if optimizer["name"] == "Momentum":
        return np.asarray(presence * (1 - optimizer["momentum"] ** t))
    if optimizer["name"] == "RMSProp":
        return _scaled(presence, 0.0, optimizer["decay"], 1.0, steps)
    b1, b2 = optimizer["beta1"], optimizer["beta2"]
    correction: Floats = np.sqrt(1 - b2**t) / (1 - b1**t)
    return correction * _scaled(presence, b1, b2, 0.0, steps)


def _scaled(p: float, b1: float, b2: float, start: float, steps: int) -> Floats:
    """Return E[m_t v_t^(-1/2)] for t = 1, ..., ``steps``; v_0 = ``start``.

    The integral over s is a sum over x = log s, which converges exponentially. After
    enough memories of v the value is constant.
    """
    counted = min(steps, int(MEMORIES / (1 - b2)) + 1)
    ages = np.arange(counted)[:, None]
    x = np.arange(-50.0, np.log(200 / (1 - b2)), NODE_DISTANCE)
    s = np.exp(x)
    weights = np.exp(-s * (1 - b2) * b2**ages)
    factors = 1 - p + p * weights
    past = np.cumsum(np.log(factors), axis=0)
    m = np.cumsum((1 - b1) * b1**ages * p * weights / factors, axis=0)
    transform = np.exp(past - s * start * b2 ** (ages + 1)) * m
    settled = transform @ (np.sqrt(s) * NODE_DISTANCE / np.sqrt(np.pi))
    return np.pad(settled, (0, steps - counted), mode="edge")


@cache
def _left_out(
    frozen: tuple[tuple[str, Any], ...], presence: float, clock: float, window: Window
) -> float:
    """Average over the updates u of the run; each has the task with p / clock.

    Update u is in the window with probability P(N_last >= u) - P(N_first >= u),
    N_t ~ Binomial(t, clock). Of the updates before it, n - 1 had the task, with
    n - 1 ~ Binomial(u - 1, p / clock).
    """
    first, last = window
    inside = _at_least(first, clock, last)
    inside = _at_least(last, clock, last) - inside
    events = np.unique(np.linspace(1, last, min(last, NODES)).astype(int)).tolist()
    means = []
    for u in events:
        before, chance = _binomial(u - 1, presence / clock)
        means.append(float(chance @ _length(dict(frozen), before + 1, u)))
    every = np.arange(1, last + 1)
    return float(inside @ np.interp(every, events, means) / inside.sum())


def _length(optimizer: Mapping[str, Any], n: Floats, u: float) -> Floats:
    """Return the movement at a task's n-th update, the u-th of the optimizer."""
    if optimizer["name"] == "Momentum":
        return np.asarray(1 - optimizer["momentum"] ** n)
    if optimizer["name"] == "RMSProp":
        return np.ones_like(n)
    b1, b2 = optimizer["beta1"], optimizer["beta2"]
    moments = (1 - b1**n) / (1 - b1**u), (1 - b2**u) / (1 - b2**n)
    return np.asarray(moments[0] * np.sqrt(moments[1]))


def _binomial(trials: int, p: float) -> tuple[Floats, Floats]:
    """Return the counts within 10 standard deviations and their probabilities."""
    spread = 10 * np.sqrt(trials * p * (1 - p)) + 10
    low = max(0, int(trials * p - spread))
    k = np.arange(low, min(trials, int(trials * p + spread)) + 1, dtype=np.float64)
    if p == 1:
        return np.array([float(trials)]), np.ones(1)
    log = _log_factorials(1 << trials.bit_length())
    ways = log[trials] - log[k.astype(int)] - log[trials - k.astype(int)]
    return k, np.exp(ways + k * np.log(p) + (trials - k) * np.log1p(-p))


def _at_least(trials: int, p: float, highest: int) -> Floats:
    """Return P(N >= u) for u = 1, ..., ``highest``, N ~ Binomial(trials, p)."""
    k, chance = _binomial(trials, p)
    of = np.zeros(highest + 1)
    of[k.astype(int)] = chance
    return np.asarray(np.cumsum(of[::-1])[::-1][1:])


@cache
def _log_factorials(highest: int) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, highest + 1)))])
