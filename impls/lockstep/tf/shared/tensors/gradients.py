"""Dense and sparse gradients: checks against their variables, and sums of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.messages.base import refusals
from lockstep.messages.base.pairs import require_indices, require_rows

__all__ = [
    "HALF",
    "as_tensor",
    "check_dtypes",
    "check_like",
    "check_rows",
    "check_shapes",
    "sum_duplicates",
    "summed_values",
    "times",
    "widen",
    "with_values",
]

HALF = (tf.float16, tf.bfloat16)
Gradient = tf.Tensor | tf.IndexedSlices
Pairs = Sequence[tuple[tf.Tensor | tf.IndexedSlices | None, Any]]
Names = Callable[[int], str]
"""The position of a pair -> the name of its variable in messages."""


def check_like(
    owner: str, pairs: Pairs, name_at: Names, takes_wide: bool = False
) -> None:
    """Raise unless gradients match their variables' shapes, dtypes and rows."""
    check_shapes(owner, pairs, name_at)
    check_dtypes(owner, pairs, name_at, takes_wide)
    check_rows(owner, pairs, name_at)


def check_dtypes(
    owner: str, pairs: Pairs, name_at: Names, takes_wide: bool = False
) -> None:
    """Raise unless gradients have their variables' dtypes.

    ``takes_wide``: a float32 gradient may belong to a half-precision variable.
    """
    for position, (gradient, variable) in enumerate(pairs):
        if gradient is None:
            continue
        got, expected = gradient.dtype, variable.dtype.base_dtype
        is_wide = takes_wide and got == tf.float32 and expected in HALF
        if got != expected and not is_wide:
            raise refusals.OTHER_DTYPE.error(
                owner=owner,
                expected=expected.name,
                name=name_at(position),
                got=got.name,
            )


def check_shapes(owner: str, pairs: Pairs, name_at: Names) -> None:
    """Raise unless gradients have their variables' shapes, as far as these are known.

    For a sparse gradient the shapes of a row are compared.
    """
    for position, (gradient, variable) in enumerate(pairs):
        if gradient is None:
            continue
        if isinstance(gradient, tf.IndexedSlices):
            shape, expected = gradient.values.shape[1:], variable.shape[1:]
        else:
            shape, expected = gradient.shape, variable.shape
        if not shape.is_compatible_with(expected):
            raise refusals.OTHER_SHAPE.error(
                owner=owner,
                expected=list(expected),
                name=name_at(position),
                got=list(shape),
            )


def check_rows(owner: str, pairs: Pairs, name_at: Names) -> None:
    """Raise unless sparse gradients' indices fit their values and variables.

    In eager mode the indices are read. In a graph TensorFlow checks them when it runs.
    """
    for position, (gradient, variable) in enumerate(pairs):
        if not isinstance(gradient, tf.IndexedSlices):
            continue
        indices = tf.convert_to_tensor(gradient.indices)
        rows = gradient.values.shape[:1]
        if not indices.shape.is_compatible_with(rows):
            count = indices.shape.num_elements()
            require_rows(owner, name_at(position), count, rows.num_elements())
        if tf.executing_eagerly() and len(indices) and variable.shape.rank:
            numbers = np.asarray(indices)
            ends = int(numbers.min()), int(numbers.max())
            require_indices(owner, name_at(position), ends, variable.shape[0])


def sum_duplicates(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Add up rows that have the same index.

    ``values`` [k, ...] becomes [u, ...] with u distinct ``indices``, in the order of
    their first occurrence. The sum has the dtype of the values.
    """
    indices, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def summed_values(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """Return the elements of a gradient, with duplicate rows summed."""
    if isinstance(gradient, tf.IndexedSlices):
        return sum_duplicates(gradient).values
    return gradient


def with_values(
    gradient: tf.Tensor | tf.IndexedSlices, values: tf.Tensor
) -> tf.Tensor | tf.IndexedSlices:
    """Return a gradient with these values; a sparse one keeps its indices."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def widen(gradient: Gradient) -> Gradient:
    """Return a gradient, or the rows of a sparse one, in float32."""
    if isinstance(gradient, tf.IndexedSlices):
        values = tf.cast(gradient.values, tf.float32)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return tf.cast(gradient, tf.float32)


def times(gradient: Gradient, factor: float | tf.Tensor) -> Gradient:
    """Return a gradient, or the rows of a sparse one, times ``factor``.

    The factor is rounded to the gradient's dtype first.
    """
    if isinstance(gradient, tf.IndexedSlices):
        values = times(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient * as_tensor(factor, gradient.dtype)


def as_tensor(number: float | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Round a number to ``dtype`` once; cast a tensor."""
    if tf.is_tensor(number):
        return tf.cast(number, dtype)
    return tf.constant(number, dtype)
