"""LogMax: the scale follows a forecast of the largest gradient, in logarithms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep.messages.scaling.automatic_scaler import LogMaxPolicy

__all__ = ["LogMaxState", "log_amax", "scale_for", "start_logmax", "step_logmax"]

Single = np.float32


class LogMaxState(NamedTuple):
    """Running means of x = log2(amax), in float32; amax is the largest magnitude.

    Attributes:
        loss_scale: the scale of the next step.
        iteration: number of steps so far.
        x_hat: running mean of x with beta1.
        slow_x_hat: running mean of x with beta2, for the variance.
        xsquared_hat: running mean of x^2 with beta2, for the variance.
        b1_correction: beta1^t after t steps; a mean is divided by 1 - beta1^t.
        b2_correction: beta2^t.
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
    zero, one = Single(0), Single(1)
    return LogMaxState(one, 0, zero, zero, zero, one, one)


def step_logmax(
    policy: LogMaxPolicy, state: LogMaxState, has_nan: bool, amax: float
) -> LogMaxState:
    """Return the state after a step with these gradients.

    ``has_nan``: whether a gradient contains NaN. ``amax``: the largest magnitude of all
    gradients.

    x = log2(amax), or ``overflow_log`` on overflow; x_hat = b1 x_hat + (1 - b1) x;
    slow = b2 slow + (1 - b2) x; sq = b2 sq + (1 - b2) x^2; c1 = c1 b1, c2 = c2 b2. All
    are float32; 1 - b is computed in float64 and rounded. By default a step with amax 0
    changes none of these, nor the scale.
    """
    state = state._replace(iteration=state.iteration + 1)
    with np.errstate(all="ignore"):
        x = log_amax(policy, has_nan, amax)
        if policy.guarded and np.isneginf(x):
            return state
        b1, b2 = Single(policy.beta1), Single(policy.beta2)
        rest1, rest2 = Single(1 - policy.beta1), Single(1 - policy.beta2)
        state = state._replace(
            x_hat=b1 * state.x_hat + rest1 * x,
            slow_x_hat=b2 * state.slow_x_hat + rest2 * x,
            xsquared_hat=b2 * state.xsquared_hat + rest2 * (x * x),
            b1_correction=state.b1_correction * b1,
            b2_correction=state.b2_correction * b2,
        )
        return state._replace(loss_scale=scale_for(policy, state))


def log_amax(policy: LogMaxPolicy, has_nan: bool, amax: float) -> np.float32:
    """Return x: fl(ln amax) / fl(ln 2) in float32; -inf for zero and subnormals."""
    largest = Single(amax)
    if has_nan or np.isinf(largest) or (policy.guarded and np.isnan(largest)):
        return Single(policy.overflow_log)
    if largest < np.finfo(Single).smallest_normal:
        return Single(-np.inf)
    return Single(np.log(np.float64(largest))) / Single(np.log(2.0))


def scale_for(policy: LogMaxPolicy, state: LogMaxState) -> np.float32:
    """Return clip(2^(target - (mu + deviations sigma))); NaN stays NaN.

    mu = x_hat / (1 - c1); sigma^2 = sq / (1 - c2) - (slow / (1 - c2))^2, at least 0.
    """
    one = Single(1)
    mu = state.x_hat / (one - state.b1_correction)
    slow = state.slow_x_hat / (one - state.b2_correction)
    square = state.xsquared_hat / (one - state.b2_correction)
    sigma = np.sqrt(np.maximum(square - slow * slow, Single(0)))
    cutoff = mu + Single(policy.overflow_std_dev) * sigma
    scale = Single(np.exp2(np.float64(Single(policy.target) - cutoff)))
    at_most = np.minimum(scale, Single(policy.scale_max))
    return Single(np.maximum(at_most, Single(policy.scale_min)))
