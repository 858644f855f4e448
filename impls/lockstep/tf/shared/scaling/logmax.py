"""LogMax: the scale follows a forecast of the largest gradient, in logarithms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from lockstep.messages.scaling.automatic_scaler import LogMaxPolicy
from lockstep.tf.shared.scaling.backoff import clip

__all__ = ["LogMaxState", "log_amax", "scale_for", "start_logmax", "step_logmax"]

SMALLEST_NORMAL = float(np.finfo(np.float32).smallest_normal)


class LogMaxState(NamedTuple):
    """The same running means of x as in the reference, as 0-d tensors."""

    loss_scale: tf.Tensor
    iteration: tf.Tensor
    x_hat: tf.Tensor
    slow_x_hat: tf.Tensor
    xsquared_hat: tf.Tensor
    b1_correction: tf.Tensor
    b2_correction: tf.Tensor


def start_logmax(policy: LogMaxPolicy) -> LogMaxState:
    """Return the state before the first step, as numbers; the scale is 1."""
    return LogMaxState(1.0, 0, 0.0, 0.0, 0.0, 1.0, 1.0)


def step_logmax(
    policy: LogMaxPolicy, state: LogMaxState, has_nan: tf.Tensor, amax: tf.Tensor
) -> LogMaxState:
    """Return the state after a step; the reference's file has the formulas.

    With a guarded policy, a step with amax 0 changes only ``iteration``.
    """
    x = log_amax(policy, has_nan, amax)
    after = state._replace(
        iteration=state.iteration + 1,
        x_hat=mean(state.x_hat, x, policy.beta1),
        slow_x_hat=mean(state.slow_x_hat, x, policy.beta2),
        xsquared_hat=mean(state.xsquared_hat, x * x, policy.beta2),
        b1_correction=state.b1_correction * policy.beta1,
        b2_correction=state.b2_correction * policy.beta2,
    )
    after = after._replace(loss_scale=scale_for(policy, after))
    if not policy.guarded:
        return after
    alone = tf.equal(x, float("-inf"))
    pairs = zip(state, after, strict=True)
    left = LogMaxState(*(tf.where(alone, old, new) for old, new in pairs))
    return left._replace(iteration=after.iteration)


def mean(average: tf.Tensor, x: tf.Tensor, beta: float) -> tf.Tensor:
    """Return beta average + (1 - beta) x."""
    return beta * average + (1 - beta) * x


def log_amax(policy: LogMaxPolicy, has_nan: tf.Tensor, amax: tf.Tensor) -> tf.Tensor:
    """Return log2(amax), as the reference computes it."""
    unlike = tf.math.is_inf(amax)
    if policy.guarded:
        unlike = tf.logical_not(tf.math.is_finite(amax))
    normal = tf.where(amax < SMALLEST_NORMAL, tf.zeros_like(amax), amax)
    x = tf.math.log(normal) / tf.math.log(tf.constant(2.0))
    on_overflow = tf.constant(policy.overflow_log, tf.float32)
    return tf.where(tf.logical_or(has_nan, unlike), on_overflow, x)


def scale_for(policy: LogMaxPolicy, state: LogMaxState) -> tf.Tensor:
    """Return the scale for the running means; NaN is kept."""
    mu = state.x_hat / (1 - state.b1_correction)
    slow = state.slow_x_hat / (1 - state.b2_correction)
    square = state.xsquared_hat / (1 - state.b2_correction)
    sigma = tf.sqrt(tf.maximum(square - slow * slow, 0.0))
    cutoff = mu + policy.overflow_std_dev * sigma
    return clip(tf.pow(2.0, policy.target - cutoff), policy)
