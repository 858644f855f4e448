"""Checks and conversions of losses, variables and (gradient, variable) pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep.errors import with_article
from lockstep.messages import tf as words
from lockstep.messages.base import refusals
from lockstep.messages.base.differentiation import (
    check_no_arguments,
    check_options,
    not_listed,
    refuse_text,
)
from lockstep.messages.base.pairs import (
    as_pairs,
    require_gradients,
)
from lockstep.messages.nouns import TF
from lockstep.tf.shared.tensors.gradients import check_like

__all__ = [
    "MODEL_NAME",
    "Gradient",
    "Pairs",
    "as_counter",
    "as_gradient",
    "as_variable",
    "check_pairs",
    "checked_arguments",
    "listed",
    "name_of",
]

Gradient = tf.Tensor | tf.IndexedSlices | None
Pairs = list[tuple[Gradient, tf.Variable]]
MODEL_NAME = "_lockstep_model_name"
"""The attribute of a master that holds the name of its variable."""


def check_pairs(
    grads_and_vars: Iterable[Any], owner: str, takes_wide: bool = False
) -> Pairs:
    """Return the pairs, checked and converted.

    ``takes_wide``: a float32 gradient may belong to a half-precision variable.
    """
    pairs: Pairs = []
    for gradient, key in as_pairs(grads_and_vars, owner):
        variable = as_variable(key)
        if not isinstance(variable, tf.Variable):
            raise refusals.NOT_A_VARIABLE.error(
                owner=owner, nouns=TF, got=type(variable).__name__
            )
        pairs.append((as_gradient(gradient, variable, owner), variable))
    check_like(owner, pairs, lambda k: name_of(pairs[k][1]), takes_wide)
    require_gradients(pairs, owner, (name_of(variable) for _, variable in pairs))
    return pairs


def checked_arguments(
    owner: str,
    loss: Any,
    var_list: Iterable[Any] | None,
    gate_gradients: int,
    aggregation_method: int | None,
    colocate_gradients_with_ops: bool,
    grad_loss: Any,
) -> dict[str, Any]:
    """Return the arguments of ``compute_gradients`` by name, checked."""
    if tf.executing_eagerly() and not callable(loss):
        raise words.EAGER_LOSS.error(owner=owner, got=type(loss).__name__)
    check_options(owner, gate_gradients, aggregation_method)
    loss = checked_loss(loss, owner)
    if grad_loss is not None:
        refuse_text(grad_loss, owner)
        grad_loss = as_gradient(grad_loss, "the loss", owner)
    if var_list is not None:
        var_list = listed(var_list, owner)
    return {
        "loss": loss,
        "var_list": var_list,
        "gate_gradients": gate_gradients,
        "aggregation_method": aggregation_method,
        "colocate_gradients_with_ops": colocate_gradients_with_ops,
        "grad_loss": grad_loss,
    }


def checked_loss(loss: Any, owner: str) -> Any:
    """Return a loss; a function then raises if it returns no loss."""
    if not callable(loss):
        return loss
    check_no_arguments(loss, owner)

    def compute() -> Any:
        value = loss()
        if value is None or isinstance(value, str | tf.Operation):
            raise refusals.NO_LOSS.error(owner=owner, got=value)
        return value

    return compute


def listed(var_list: Any, owner: str) -> list[tf.Variable]:
    """Return the variables of a nest, or a single variable in a list."""
    variables = [as_variable(variable) for variable in tf.nest.flatten(var_list)]
    for variable in variables:
        if not isinstance(variable, tf.Variable):
            raise not_listed(owner, variable)
    return variables


def as_variable(variable: Any) -> Any:
    """Return the ``tf.Variable`` of a ``keras.Variable`` or of a ``variable.ref()``."""
    if hasattr(variable, "deref"):
        variable = variable.deref()
    value = getattr(variable, "value", None)
    return value if isinstance(value, tf.Variable) else variable


def as_counter(
    global_step: Any, owner: str, any_dtype: bool = False
) -> tf.Variable | None:
    """Return the variable that counts steps, or None; raise if it cannot count.

    By default it must have an integer dtype; ``any_dtype`` allows other dtypes.
    """
    if global_step is None:
        return None
    variable = as_variable(global_step)
    if not isinstance(variable, tf.Variable):
        raise words.NOT_A_COUNTER.error(
            owner=owner, got=with_article(type(global_step).__name__)
        )
    dtype = variable.dtype.base_dtype
    fine = any_dtype or dtype.is_integer
    if not (fine and variable.shape.is_compatible_with([])):
        got = f"{with_article(dtype.name)} variable of shape {list(variable.shape)}"
        raise words.NOT_A_COUNTER.error(owner=owner, got=got)
    return variable


def as_gradient(gradient: Any, variable: Any, owner: str) -> Gradient:
    """Return None, tensors and slices as they are; convert arrays and numbers.

    ``variable``: the gradient's variable, or the gradient's name in messages.
    """
    if isinstance(gradient, tf.IndexedSlices) and not tf.is_tensor(gradient.indices):
        indices = tf.convert_to_tensor(gradient.indices)
        return tf.IndexedSlices(gradient.values, indices, gradient.dense_shape)
    if gradient is None or isinstance(gradient, tf.IndexedSlices):
        return gradient
    try:
        return tf.convert_to_tensor(gradient)
    except (TypeError, ValueError) as error:
        name = variable if isinstance(variable, str) else name_of(variable)
        raise words.NOT_A_GRADIENT.error(
            owner=owner, name=name, got=type(gradient).__name__
        ) from error


def name_of(variable: Any) -> str:
    """Return the user's name of a variable; for a master, the name of its model's."""
    name = vars(variable).get(MODEL_NAME) if hasattr(variable, "__dict__") else None
    return name or str(getattr(variable, "name", variable)).removesuffix(":0")
