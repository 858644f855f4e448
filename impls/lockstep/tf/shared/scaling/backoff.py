"""Backoff: the scale shrinks on overflow and grows after ``step_window`` steps."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from lockstep.messages.scaling.automatic_scaler import BackoffPolicy, LogMaxPolicy

__all__ = ["BackoffState", "clip", "start_backoff", "step_backoff"]


class BackoffState(NamedTuple):
    """``loss_scale`` is float32; the two step counts are int64."""

    loss_scale: tf.Tensor
    iteration: tf.Tensor
    last_overflow_iteration: tf.Tensor


def start_backoff(policy: BackoffPolicy) -> BackoffState:
    """Return the state before the first step, as numbers."""
    return BackoffState(policy.scale_max, 0, -1)


def step_backoff(
    policy: BackoffPolicy, state: BackoffState, has_nan: tf.Tensor, amax: tf.Tensor
) -> BackoffState:
    """Return the state after a step; i is the iteration before it.

    An overflow is ``has_nan``, or an infinite ``amax``, or a NaN ``amax`` with
    ``nan_overflows``. It gives scale = clip(scale / factor), last = i. Otherwise, if
    (i - last) mod window = 0, scale = clip(scale factor). Then i + 1.

    Growth resets no counter, in the default mode too.
    """
    scale, i, last = state
    unlike = tf.math.is_inf(amax)
    if policy.nan_overflows:
        unlike = tf.logical_not(tf.math.is_finite(amax))
    overflow = tf.logical_or(has_nan, unlike)
    factor = tf.constant(policy.step_factor, tf.float32)
    due = tf.equal(tf.math.floormod(i - last, int(policy.step_window)), 0)
    next_scale = tf.where(due, clip(scale * factor, policy), scale)
    return BackoffState(
        tf.where(overflow, clip(scale / factor, policy), next_scale),
        i + 1,
        tf.where(overflow, i, last),
    )


def clip(scale: tf.Tensor, policy: BackoffPolicy | LogMaxPolicy) -> tf.Tensor:
    """Return max(min(scale, scale_max), scale_min); if the bounds cross, scale_min."""
    return tf.maximum(tf.minimum(scale, policy.scale_max), policy.scale_min)
