"""Dynamic loss scale: grows after a run of finite steps, shrinks at an overflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from lockstep.spec.loss_scaling import DynamicPolicy
from lockstep.tf.core.zero_test import summed_values

__all__ = [
    "DynamicState",
    "finite_flags",
    "start_dynamic",
    "step_dynamic",
]


class DynamicState(NamedTuple):
    """The scale, float32, and the finite steps since it last moved, int64."""

    loss_scale: tf.Tensor
    good_steps: tf.Tensor


def start_dynamic(policy: DynamicPolicy) -> DynamicState:
    """Return the state before the first step, as numbers."""
    return DynamicState(policy.initial_loss_scale, 0)


def step_dynamic(
    policy: DynamicPolicy, state: DynamicState, finite: tf.Tensor
) -> DynamicState:
    """Return the state after a step.

    finite: good + 1; from ``increment_period`` on scale = min(scale multiplier,
    ceiling), unless that is not finite, and good = 0. Otherwise:
    scale = max(scale / multiplier, floor), good = 0.
    """
    multiplier = tf.constant(policy.multiplier, tf.float32)
    grown = tf.minimum(state.loss_scale * multiplier, policy.ceiling)
    grown = tf.where(tf.math.is_finite(grown), grown, state.loss_scale)
    due = state.good_steps + 1 >= policy.increment_period
    shrunk = tf.maximum(state.loss_scale / multiplier, policy.floor)
    moved = tf.where(due, grown, state.loss_scale)
    return DynamicState(
        tf.where(finite, moved, shrunk),
        tf.where(
            tf.logical_and(finite, tf.logical_not(due)),
            state.good_steps + 1,
            tf.zeros((), tf.int64),
        ),
    )


def finite_flags(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
    """Say of n gradients whether every element is finite: bool, [n].

    The duplicate rows of a sparse gradient are summed first.
    """
    if not gradients:
        return tf.ones([0], tf.bool)
    flags = [
        tf.reduce_all(tf.math.is_finite(summed_values(gradient)))
        for gradient in gradients
    ]
    return tf.stack(flags)
