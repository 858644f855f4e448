"""A loss scale that depends on the largest gradient, by Backoff or LogMax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lockstep.messages.scaling import automatic_scaler as words
from lockstep.tf.shared.scaling.backoff import BackoffState, start_backoff, step_backoff
from lockstep.tf.shared.scaling.logmax import LogMaxState, start_logmax, step_logmax

__all__ = ["State", "as_amax", "dtype_of", "find_largest", "start_scale", "step_scale"]

State = BackoffState | LogMaxState


def start_scale(algorithm: str, policy: Any) -> State:
    """Return the state before the first step."""
    return (start_backoff if algorithm == "backoff" else start_logmax)(policy)


def step_scale(policy: Any, state: State, has_nan: tf.Tensor, amax: tf.Tensor) -> State:
    """Return the state after one step, by the algorithm of ``state``."""
    if isinstance(state, BackoffState):
        return step_backoff(policy, state, has_nan, amax)
    return step_logmax(policy, state, has_nan, amax)


def as_amax(amax: Any, must_be_float32: bool) -> tf.Tensor:
    """Return the largest absolute value as float32."""
    if not tf.is_tensor(amax):
        return tf.constant(amax, tf.float32)
    if must_be_float32:
        words.check_amax_dtype(amax.dtype.name)
    return tf.cast(amax, tf.float32)


def dtype_of(name: str) -> str:
    """Return the dtype of an entry of the state."""
    return "int64" if name in ("iteration", "last_overflow_iteration") else "float32"


def find_largest(values: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return whether any element is NaN, and the largest magnitude of the others.

    All tensors must have the same dtype, which the maximum has too. Without elements,
    or if all are NaN, the maximum is -inf.
    """
    if not values:
        return tf.constant(False), tf.constant(float("-inf"))
    has_nan = tf.stack([tf.reduce_any(tf.math.is_nan(v)) for v in values])
    largest = tf.stack([largest_of(value) for value in values])
    return tf.reduce_any(has_nan), tf.reduce_max(largest)


def largest_of(values: tf.Tensor) -> tf.Tensor:
    """Return the largest magnitude, NaN ignored; -inf if there is none."""
    nothing = tf.constant(float("-inf"), values.dtype)
    known = tf.where(tf.math.is_nan(values), nothing, tf.abs(values))
    return tf.reduce_max(known)
