"""NovoGrad: the normalization of a gradient, before momentum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

__all__ = [
    "Policy",
    "densify",
    "direction_of",
    "next_moment",
    "normalized",
    "policy_of",
    "square_norm",
    "wide_dtype",
]


class Policy(NamedTuple):
    """Hyper-parameters except those of momentum, in float32 or float64.

    Attributes:
        beta2, rest2: b2, 1 - b2.
        epsilon, weight_decay: numbers; a decay of 0 is None.
        share: the factor of g', 1 or 1 - b1.
        remembers: whether v is kept between steps.
    """

    beta2: tf.Tensor
    rest2: tf.Tensor
    epsilon: tf.Tensor
    weight_decay: tf.Tensor | None
    share: tf.Tensor
    remembers: bool


def wide_dtype(dtype: tf.DType) -> tf.DType:
    """Return the dtype in which norms are computed: at least float32."""
    return tf.float64 if dtype.base_dtype == tf.float64 else tf.float32


def policy_of(arguments: Mapping[str, Any], dtype: tf.DType, remembers: bool) -> Policy:
    """Return the constructor's arguments as tensors of :func:`wide_dtype`."""
    wide = wide_dtype(dtype)
    share = 1 - arguments["beta1"] if arguments["grad_averaging"] else 1.0
    decay = arguments["weight_decay"]
    decays = tf.is_tensor(decay) or decay > 0
    return Policy(
        tf.cast(arguments["beta2"], wide),
        tf.cast(1 - arguments["beta2"], wide),
        tf.cast(arguments["epsilon"], wide),
        tf.cast(decay, wide) if decays else None,
        tf.cast(share, wide),
        remembers,
    )


def densify(gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> tf.Tensor:
    """Return the dense gradient: duplicate rows summed, zeros in other rows."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    count = tf.cast(tf.shape(variable)[0], gradient.indices.dtype)
    rows = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, count)
    return tf.ensure_shape(rows, variable.shape)


def square_norm(gradient: tf.Tensor) -> tf.Tensor:
    """Return |g|^2 in :func:`wide_dtype`: 0-d."""
    return tf.reduce_sum(tf.square(tf.cast(gradient, wide_dtype(gradient.dtype))))


def next_moment(
    policy: Policy, moment: tf.Tensor | tf.Variable, square: tf.Tensor
) -> tf.Tensor:
    """Return v after a step; v restarts with |g|^2 where it is 0 or not finite.

    Without ``remembers`` v is not written back. There a v other than 0 comes from an
    earlier call that built the same graph.
    """
    moment = tf.convert_to_tensor(moment)
    begun = tf.not_equal(moment, 0)
    if policy.remembers:
        begun = tf.logical_and(moment > 0, tf.math.is_finite(moment))
    mixed = moment * policy.beta2 + square * policy.rest2
    return tf.where(begun, mixed, square)


def direction_of(
    policy: Policy,
    moment: tf.Tensor,
    variable: tf.Tensor | tf.Variable,
    gradient: tf.Tensor,
) -> tf.Tensor:
    """Return g' = (g (1 / sqrt(v + eps)) + wd w) share, in the dtype of norms."""
    factor = 1.0 / tf.sqrt(moment + policy.epsilon)
    direction = tf.cast(gradient, factor.dtype) * factor
    if policy.weight_decay is not None:
        direction += policy.weight_decay * tf.cast(variable, factor.dtype)
    return direction * policy.share


def normalized(
    policy: Policy,
    moment: tf.Tensor,
    variable: tf.Tensor | tf.Variable,
    gradient: tf.Tensor,
) -> tf.Tensor:
    """Return :func:`direction_of`, rounded to the dtype of the gradient."""
    return tf.cast(direction_of(policy, moment, variable, gradient), gradient.dtype)
