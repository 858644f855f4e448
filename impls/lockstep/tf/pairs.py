"""(gradient, variable) pairs as TensorFlow has them: checked once, then trusted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep.spec import tf_host as words
from lockstep.spec.pairs import as_pairs, require_gradients, require_like
from lockstep.tf.core.rows import check_rows

__all__ = [
    "Gradient",
    "Pairs",
    "as_counter",
    "as_gradient",
    "as_variable",
    "check_pairs",
    "name_of",
]

Gradient = tf.Tensor | tf.IndexedSlices | None
Pairs = list[tuple[Gradient, tf.Variable]]


def check_pairs(grads_and_vars: Iterable[Any], owner: str) -> Pairs:
    """Return the checked pairs; nothing has changed when this raises."""
    pairs: Pairs = []
    for gradient, variable in as_pairs(grads_and_vars, owner):
        variable = as_variable(variable)
        if not isinstance(variable, tf.Variable):
            raise words.not_a_variable(owner, type(variable).__name__)
        gradient = as_gradient(gradient, name_of(variable), owner)
        if gradient is not None:
            check_like(gradient, variable, owner)
        pairs.append((gradient, variable))
    require_gradients(pairs, owner, [name_of(variable) for _, variable in pairs])
    return pairs


def as_variable(variable: Any) -> Any:
    """Return the ``tf.Variable`` of a ``keras.Variable`` or of a ``variable.ref()``."""
    if hasattr(variable, "deref"):
        variable = variable.deref()
    value = getattr(variable, "value", None)
    return value if isinstance(value, tf.Variable) else variable


def as_counter(
    global_step: Any, owner: str, strict: bool = False
) -> tf.Variable | None:
    """Return the variable that counts steps, or None; raise if it cannot count.

    Strict: as the original, a variable of any dtype does.
    """
    if global_step is None:
        return None
    variable = as_variable(global_step)
    if not isinstance(variable, tf.Variable):
        raise words.not_a_counter(owner, f"a {type(global_step).__name__}")
    dtype = variable.dtype.base_dtype
    fine = strict or dtype.is_integer
    if not (fine and variable.shape.is_compatible_with([])):
        got = f"a {dtype.name} variable of shape {list(variable.shape)}"
        raise words.not_a_counter(owner, got)
    return variable


def as_gradient(gradient: Any, name: str, owner: str) -> Gradient:
    """Return None, tensors and slices as they are; convert arrays and numbers."""
    if isinstance(gradient, tf.IndexedSlices) and not tf.is_tensor(gradient.indices):
        indices = tf.convert_to_tensor(gradient.indices)
        return tf.IndexedSlices(gradient.values, indices, gradient.dense_shape)
    if gradient is None or isinstance(gradient, tf.IndexedSlices):
        return gradient
    try:
        return tf.convert_to_tensor(gradient)
    except (TypeError, ValueError) as error:
        raise words.not_a_gradient(owner, name, type(gradient).__name__) from error


def name_of(variable: Any) -> str:
    """Return the name of a variable as its maker gave it."""
    return str(getattr(variable, "name", variable)).removesuffix(":0")


def check_like(
    gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable, owner: str
) -> None:
    """Raise unless a gradient has its variable's dtype and, where known, its shape."""
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    found = gradient.values.shape[1:] if is_sparse else gradient.shape
    wanted = variable.shape[1:] if is_sparse else variable.shape
    known = tuple(wanted if found.is_compatible_with(wanted) else found)
    require_like(
        owner,
        name_of(variable),
        (known, gradient.dtype.name),
        (tuple(wanted), variable.dtype.base_dtype.name),
    )
    if is_sparse:
        check_rows(gradient, variable, name_of(variable), owner)
