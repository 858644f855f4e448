"""Checks and conversions of (gradient, variable) pairs of Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.messages import keras3 as words
from lockstep.messages.base import refusals
from lockstep.messages.nouns import KERAS3
from lockstep.tf.shared.tensors.gradients import check_like

__all__ = [
    "MODEL_NAME",
    "Gradient",
    "as_gradient",
    "as_variable",
    "check_gradients",
    "densify",
    "key_of",
    "name_of",
    "require_variable",
    "value_of",
    "with_dense_shape",
    "without_duplicates",
]

MODEL_NAME = "_lockstep_model_name"
"""The attribute of a master that holds the name of its variable."""

Gradient = tf.Tensor | tf.IndexedSlices | None


def as_variable(variable: Any) -> Any:
    """Return the variable of a ``variable.ref()``; return other objects unchanged."""
    return variable.deref() if hasattr(variable, "deref") else variable


def value_of(variable: Any) -> tf.Variable:
    """Return the ``tf.Variable`` inside a ``keras.Variable``."""
    return variable.value if isinstance(variable, keras.Variable) else variable


def key_of(variable: Any) -> Any:
    """Return a dictionary key for a variable or for its ``ref()``.

    All copies of a mirrored variable have the same key.
    """
    value = value_of(as_variable(variable))
    if not isinstance(value, tf.distribute.DistributedValues):
        container = getattr(
            getattr(value, "handle", None), "_distributed_container", None
        )
        value = value if container is None else container()
    return value.ref()


def name_of(variable: Any) -> str:
    """Return the path of a ``keras.Variable``, the name of a ``tf.Variable``.

    A master has the name of the model's variable.
    """
    name = getattr(variable, MODEL_NAME, None) or getattr(variable, "path", None)
    name = name or getattr(variable, "name", variable)
    return str(name).removesuffix(":0")


def require_variable(variable: Any, owner: str) -> Any:
    """Return the variable; raise if it is no variable."""
    variable = as_variable(variable)
    if not isinstance(variable, keras.Variable | tf.Variable):
        raise refusals.NOT_A_VARIABLE.error(
            owner=owner, nouns=KERAS3, got=type(variable).__name__
        )
    return variable


def check_gradients(
    gradients: Sequence[Any], variables: Sequence[Any], owner: str, wide: bool = False
) -> list[Gradient]:
    """Return the gradients as tensors; raise unless each fits its variable.

    ``wide``: a float32 gradient may belong to a half-precision variable.
    """
    if len(gradients) != len(variables):
        expected, got = len(variables), len(gradients)
        raise words.WRONG_COUNT.error(owner=owner, expected=expected, got=got)
    pairs = [
        (as_gradient(gradient, variable, owner), value_of(variable))
        for gradient, variable in zip(gradients, variables, strict=True)
    ]
    check_like(owner, pairs, lambda k: name_of(variables[k]), wide)
    return [gradient for gradient, _ in pairs]


def as_gradient(gradient: Any, variable: Any, owner: str) -> Gradient:
    """Convert a gradient to a tensor; return slices and None unchanged."""
    if gradient is None or isinstance(gradient, tf.IndexedSlices):
        return gradient
    try:
        return tf.convert_to_tensor(gradient)
    except (TypeError, ValueError) as error:
        name, got = name_of(variable), type(gradient).__name__
        raise words.NOT_A_GRADIENT.error(owner=owner, name=name, got=got) from error


def with_dense_shape(gradient: Gradient, variable: Any) -> Gradient:
    """Give a sparse gradient the shape of its variable, which Keras requires.

    Only the static shape is used: reading the variable would copy all of it.
    """
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    shape = value_of(variable).shape
    if (
        not is_sparse
        or gradient.dense_shape is not None
        or not shape.is_fully_defined()
    ):
        return gradient
    values, indices = map(tf.convert_to_tensor, (gradient.values, gradient.indices))
    return tf.IndexedSlices(values, indices, tf.constant(shape.as_list()))


def without_duplicates(gradient: Gradient) -> Gradient:
    """Sum the duplicate rows of a sparse gradient, because Keras does not.

    ``values`` [k, ...] keep k rows, because ``fit`` may use XLA, which needs static
    shapes. The sums come first, in ascending order of their ``indices``. After them the
    last index is repeated with rows of zeros, which change nothing.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    order = tf.argsort(gradient.indices, stable=True)
    indices = tf.gather(gradient.indices, order)
    is_new = tf.concat([tf.ones([1], bool), indices[1:] != indices[:-1]], 0)
    count = tf.shape(indices)[0]
    position = tf.cumsum(tf.cast(is_new[:count], tf.int32)) - 1
    values = tf.gather(gradient.values, order)
    totals = tf.math.unsorted_segment_sum(values, position, count)
    named = tf.math.unsorted_segment_max(indices, position, count)
    # Without an n-th sum the maximum is of nothing, which is the least integer.
    last = tf.reduce_max(indices)
    named = tf.where(tf.range(count) <= tf.reduce_max(position), named, last)
    return tf.IndexedSlices(totals, named, gradient.dense_shape)


def densify(gradient: Gradient, variable: Any) -> tf.Tensor:
    """Return a dense gradient; an absent one, and rows without an index, are 0."""
    value = value_of(variable)
    if gradient is None:
        return tf.zeros(value.shape, value.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        count = value.shape[0]
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, count)
    return gradient
