"""Dynamic loss scale: grows after a run of finite steps, shrinks at overflows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

from lockstep.messages.scaling import refusals
from lockstep.messages.scaling.loss_scale import DynamicPolicy, check_gradient_dtype

__all__ = [
    "DynamicState",
    "check_present",
    "start_dynamic",
    "step_dynamic",
]


class DynamicState(NamedTuple):
    """What one step hands on to the next; the last two only where policy is patient.

    Attributes:
        loss_scale: float32, 0-d, as all that follow; these are int64.
        good_steps: finite steps in a row since the scale last moved.
        overflows: steps that were not finite since the scale last grew; a lowering
            sets them to hysteresis - 1.
        steps: all steps since the scale last moved.
    """

    loss_scale: tf.Tensor
    good_steps: tf.Tensor
    overflows: tf.Tensor | None = None
    steps: tf.Tensor | None = None


def start_dynamic(policy: DynamicPolicy) -> DynamicState:
    """Return the state before the first step, as numbers."""
    counts = (0, 0) if policy.is_patient else (None, None)
    return DynamicState(policy.initial_loss_scale, 0, *counts)


def step_dynamic(
    policy: DynamicPolicy, state: DynamicState, finite: tf.Tensor
) -> DynamicState:
    """Return the state after a step.

    finite: good + 1; from ``increment_period`` on scale = min(scale growth, ceiling),
    unless that is not finite, and good = 0. Otherwise good = 0 and, if
    :func:`patience_ended`, scale = max(scale / multiplier, floor), or
    max(scale backoff, floor) if a factor is given.
    """
    scale, good_steps = state.loss_scale, state.good_steps + 1
    grown = tf.minimum(scale * tf.constant(policy.growth, tf.float32), policy.ceiling)
    grown = tf.where(tf.math.is_finite(grown), grown, scale)
    due = tf.logical_and(finite, good_steps >= policy.increment_period)
    lowered = tf.logical_not(finite)
    counts: tuple[tf.Tensor | None, ...] = (None, None)
    if policy.is_patient:
        lowered, counts = patience_ended(policy, state, finite, due)
    moved = tf.where(due, grown, scale)
    goes_on = tf.logical_and(finite, tf.logical_not(due))
    return DynamicState(
        tf.where(lowered, shrunk(policy, scale), moved),
        tf.where(goes_on, good_steps, tf.zeros((), tf.int64)),
        *counts,
    )


def shrunk(policy: DynamicPolicy, scale: tf.Tensor) -> tf.Tensor:
    """Return the scale after an overflow: divided, or times the factor if given."""
    if policy.backoff_factor is None:
        smaller = scale / tf.constant(policy.multiplier, tf.float32)
    else:
        smaller = scale * tf.constant(policy.backoff_factor, tf.float32)
    return tf.maximum(smaller, policy.floor)


def patience_ended(
    policy: DynamicPolicy, state: DynamicState, finite: tf.Tensor, due: tf.Tensor
) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
    """Return whether this step lowers the scale, and the two counts after it.

    It does if it is not finite, overflows >= hysteresis and
    overflows / steps >= tolerance, in float64, this step counted. ``due``: it grows.
    """
    overflow = tf.logical_not(finite)
    overflows = state.overflows + tf.cast(overflow, tf.int64)
    steps = state.steps + 1
    share = tf.cast(overflows, tf.float64) / tf.cast(steps, tf.float64)
    ended = tf.logical_and(overflows >= policy.hysteresis, share >= policy.tolerance)
    lowered, zero = tf.logical_and(overflow, ended), tf.zeros((), tf.int64)
    first_count = tf.constant(policy.hysteresis - 1, tf.int64)
    overflows = tf.where(lowered, first_count, tf.where(due, zero, overflows))
    return lowered, (overflows, tf.where(tf.logical_or(lowered, due), zero, steps))


def check_present(
    present: Iterable[tf.Tensor | tf.IndexedSlices], needs_shape: bool
) -> None:
    """Raise for gradients of integers.

    ``needs_shape``: a sparse one has to have a ``dense_shape``.
    """
    for gradient in present:
        check_gradient_dtype(gradient.dtype.name)
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if needs_shape and is_sparse and gradient.dense_shape is None:
            raise refusals.WITHOUT_DENSE_SHAPE.error(name="a sparse gradient")
