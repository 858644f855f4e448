"""Dynamic loss scale: grows after finite steps, shrinks after overflows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from lockstep.messages.scaling import refusals
from lockstep.messages.scaling.loss_scale import (
    DynamicPolicy,
    OldNames,
    check_gradient_dtype,
    dynamic_config,
    shown,
)
from lockstep.quirks import quirks_of

__all__ = [
    "DynamicNames",
    "DynamicState",
    "check_present",
    "present_in",
    "refuse_half",
    "start_dynamic",
    "step_dynamic",
]

OWNER = "DynamicLossScale"


class DynamicState(NamedTuple):
    """The state between steps; the last two counts only with patience.

    All are 0-d: ``loss_scale`` in float32, the counts in int64. The counts have the
    same meaning as in the reference's ``DynamicState``.
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

    finite: good + 1; if this reaches ``increment_period``,
    scale = min(scale growth, ceiling), unless that is not finite, and good = 0.
    Otherwise good = 0, and if :func:`patience_ended`,
    scale = max(scale / multiplier, floor), or max(scale backoff, floor) if a factor is
    given.
    """
    scale, good_steps = state.loss_scale, state.good_steps + 1
    grown = scale * tf.constant(policy.growth, tf.float32)
    if policy.ceiling < math.inf:
        grown = tf.minimum(grown, policy.ceiling)
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
    """Return the scale after an overflow: scale / multiplier, or scale backoff."""
    if policy.backoff_factor is None:
        smaller = scale / tf.constant(policy.multiplier, tf.float32)
    else:
        smaller = scale * tf.constant(policy.backoff_factor, tf.float32)
    return tf.maximum(smaller, policy.floor)


def patience_ended(
    policy: DynamicPolicy, state: DynamicState, finite: tf.Tensor, due: tf.Tensor
) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
    """Return whether this step lowers the scale, and the two counts after it.

    The scale is lowered if the step is not finite, overflows >= hysteresis and
    overflows / steps >= tolerance. The counts include this step; the quotient is
    computed in float64. ``due``: this step raises the scale.
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


def present_in(
    grads: Any, as_gradient: Callable[[Any, Any, str], Any], needs_shape: bool
) -> list[tf.Tensor | tf.IndexedSlices]:
    """Return the gradients of a nest that are not None, checked."""
    flat = [as_gradient(g, "a gradient", OWNER) for g in tf.nest.flatten(grads)]
    present = [gradient for gradient in flat if gradient is not None]
    check_present(present, needs_shape)
    return present


def check_present(
    present: Iterable[tf.Tensor | tf.IndexedSlices], needs_shape: bool
) -> None:
    """Raise for integer gradients.

    ``needs_shape``: raise for a sparse one without a ``dense_shape`` too.
    """
    for gradient in present:
        check_gradient_dtype(gradient.dtype.name)
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        if needs_shape and is_sparse and gradient.dense_shape is None:
            raise refusals.WITHOUT_DENSE_SHAPE.error(name="a sparse gradient")


def refuse_half(what: str, dtype: tf.DType) -> None:
    """Raise for a dtype that the original's float32 scale cannot multiply."""
    if dtype.base_dtype != tf.float32:
        raise refusals.HALF_PRECISION.error(what=what)


def of_policy(name: str, doc: str) -> Any:
    """Return a property that reads an attribute of the policy."""
    return property(lambda scale: getattr(scale._policy, name), doc=doc)


class DynamicNames(OldNames):
    """The public properties of a dynamic scale: its policy, and old names."""

    _policy: DynamicPolicy
    strict: bool
    current_loss_scale: Any
    good_steps: Any

    initial_loss_scale = of_policy("initial_loss_scale", "The first scale.")
    increment_period = of_policy("increment_period", "The steps from growth to growth.")
    multiplier = of_policy("multiplier", "What scales are multiplied or divided by.")
    floor = of_policy("floor", "The least scale that an overflow leads to.")
    ceiling = of_policy("ceiling", "The greatest scale that growth leads to.")
    growth_factor = of_policy("growth", "What growth multiplies by.")
    backoff_factor = of_policy("backoff", "What lowering multiplies by.")
    hysteresis = of_policy("hysteresis", "The overflows until the scale is lowered.")
    tolerance = of_policy("tolerance", "The share of steps that may overflow.")
    least = floor

    def _arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments except ``strict``."""
        without_options = quirks_of(self.strict).dynamic_scale_floor
        return dynamic_config(self._policy, without_options)

    @property
    def _current_loss_scale(self) -> Any:
        return self.current_loss_scale

    @property
    def _num_good_steps(self) -> Any:
        return self.good_steps

    def __repr__(self) -> str:
        """Return the arguments, and in eager mode the scale and the good steps."""
        name, config = type(self).__name__, self._arguments()
        if not tf.executing_eagerly():
            return shown(name, config)
        scale, good_steps = self.current_loss_scale.numpy(), self.good_steps.numpy()
        return shown(name, config, current_loss_scale=scale, num_good_steps=good_steps)
