"""Conversions between NumPy arrays and TensorFlow's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.interface import Array, Gradient, Rows

__all__ = ["linear", "to_array", "to_feed", "to_numpy", "to_tensor"]


def to_tensor(gradient: Gradient) -> tf.Tensor | tf.IndexedSlices | None:
    """Convert a gradient to a TensorFlow gradient."""
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return tf.IndexedSlices(*map(tf.constant, to_feed(gradient)))
    return tf.constant(gradient)


def to_feed(gradient: Gradient) -> Any:
    """Convert a gradient to a value to feed to a session."""
    if not isinstance(gradient, Rows):
        return gradient
    indices, shape = gradient.indices.astype(np.int64), gradient.dense_shape
    dense_shape = () if shape is None else (np.asarray(shape, np.int64),)
    return (gradient.values, indices, *dense_shape)


def to_numpy(result: Any) -> Any:
    """Convert a nest of eager tensors to a nest of arrays."""
    return tf.nest.map_structure(to_array, result)


def to_array(value: Any) -> Array | Rows | None:
    """Convert one tensor, or its value."""
    if value is None:
        return None
    if hasattr(value, "dense_shape"):
        shape = value.dense_shape
        known = None if shape is None else tuple(np.asarray(shape).tolist())
        return Rows(np.asarray(value.indices), np.asarray(value.values), known)
    return np.asarray(value)


def linear(
    variables: Sequence[Any], gradients: Sequence[Any], penalties: Sequence[tf.Tensor]
) -> tf.Tensor:
    """Return the sum of variable * g over all gradients, plus the penalties.

    The sum is float32 unless all terms are float64.
    """
    terms = []
    for variable, gradient in zip(variables, gradients, strict=True):
        if isinstance(gradient, tf.IndexedSlices):
            taken = tf.gather(variable, gradient.indices)
            terms.append(tf.reduce_sum(taken * gradient.values))
        elif gradient is not None:
            terms.append(tf.reduce_sum(variable * gradient))
    terms += penalties
    if {term.dtype for term in terms} != {tf.float64}:
        terms = [tf.cast(term, tf.float32) for term in terms]
    return tf.add_n(terms or [tf.zeros([])])
