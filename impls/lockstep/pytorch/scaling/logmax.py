"""The scale of "LogMax" in Python numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lockstep.messages.scaling.automatic_scaler import LogMaxPolicy

__all__ = ["LogMaxState", "log_amax", "scale_for", "start_logmax", "step_logmax"]

Single = np.float32
ZERO, ONE, LOG_2 = Single(0), Single(1), Single(np.log(2.0))
SMALLEST_NORMAL = np.finfo(Single).smallest_normal


class LogMaxState(NamedTuple):
    """Running means and powers of beta, each rounded to float32.

    The names are those of :class:`lockstep.reference.scaling.logmax.LogMaxState`.
    """

    loss_scale: np.float32
    iteration: int
    x_hat: np.float32
    slow_x_hat: np.float32
    xsquared_hat: np.float32
    b1_correction: np.float32
    b2_correction: np.float32


def start_logmax(policy: LogMaxPolicy) -> LogMaxState:
    """Return the state before the first step, with scale 1."""
    return LogMaxState(ONE, 0, ZERO, ZERO, ZERO, ONE, ONE)


class Singles(NamedTuple):
    """The parameters, rounded to float32; 1 - beta is computed in float64."""

    beta1: np.float32
    rest1: np.float32
    beta2: np.float32
    rest2: np.float32
    overflow_std_dev: np.float32
    target: np.float32
    scale_min: np.float32
    scale_max: np.float32


@lru_cache
def singles(policy: LogMaxPolicy) -> Singles:
    """Round the parameters once, and not in every step."""
    beta1, beta2 = policy.beta1, policy.beta2
    rest = policy.overflow_std_dev, policy.target, policy.scale_min, policy.scale_max
    return Singles(*map(Single, (beta1, 1 - beta1, beta2, 1 - beta2, *rest)))


@np.errstate(all="ignore")
def step_logmax(
    policy: LogMaxPolicy, state: LogMaxState, has_nan: bool, amax: float
) -> LogMaxState:
    """Return the next state, with the roundings of the reference in the same order.

    Quirk ``logmax_overflow``.
    """
    scale, i, x_hat, slow_x_hat, xsquared_hat, correction1, correction2 = state
    beta1, rest1, beta2, rest2 = singles(policy)[:4]
    x = log_amax(policy, has_nan, amax)
    if policy.guarded and x == -math.inf:
        return state._replace(iteration=i + 1)
    # A plain tuple, because a named one takes longer to make.
    moved = (
        scale,
        i + 1,
        beta1 * x_hat + rest1 * x,
        beta2 * slow_x_hat + rest2 * x,
        beta2 * xsquared_hat + rest2 * (x * x),
        correction1 * beta1,
        correction2 * beta2,
    )
    return LogMaxState(scale_for(policy, moved), *moved[1:])


def log_amax(policy: LogMaxPolicy, has_nan: bool, amax: float) -> np.float32:
    """Return log2(amax) as float32 kernels do: -inf for zero and subnormals.

    Quirk ``logmax_overflow``.
    """
    largest = Single(amax)
    if has_nan or math.isinf(largest) or (policy.guarded and math.isnan(largest)):
        return Single(policy.overflow_log)
    if largest < SMALLEST_NORMAL:
        return Single(-math.inf)
    return Single(math.log(largest)) / LOG_2


def scale_for(policy: LogMaxPolicy, state: Sequence[Any]) -> np.float32:
    """Return the scale for which an overflow remains rare; NaN stays NaN.

    ``state`` has the entries of a :class:`LogMaxState`. The formula is that of
    :func:`lockstep.reference.scaling.logmax.scale_for`.
    """
    deviations, target, scale_min, scale_max = singles(policy)[4:]
    x_hat, slow_x_hat, xsquared_hat, correction1, correction2 = state[2:]
    rest2 = ONE - correction2
    mu = x_hat / (ONE - correction1)
    slow = slow_x_hat / rest2
    variance = xsquared_hat / rest2 - slow * slow
    # Only rounding makes it negative. NaN is not less than zero, so it stays NaN.
    sigma = Single(math.sqrt(ZERO if variance < ZERO else variance))
    scale = Single(np.exp2(float(target - (mu + deviations * sigma))))
    at_most = scale_max if scale > scale_max else scale
    return scale_min if at_most < scale_min else at_most
