"""The float32 masters of half-precision variables: creation, sync and rounding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from lockstep.keras3.base.gradients import MODEL_NAME, name_of, value_of
from lockstep.tf.shared.tensors.half import follow, saturating_cast

__all__ = ["copy_back", "copy_changes", "make_master"]


def make_master(optimizer: keras.optimizers.Optimizer, variable: Any) -> keras.Variable:
    """Create a float32 variable of ``optimizer`` with the value of ``variable``.

    It has the constraint of ``variable``, because Keras applies the constraints of the
    variables that it updates.
    """
    wide = tf.cast(value_of(variable).read_value(), tf.float32)
    master = optimizer.add_variable(
        shape=variable.shape,
        initializer=lambda shape, dtype=None: wide,
        dtype="float32",
        name=f"{name_of(variable).replace('/', '_')}_master",
    )
    setattr(master, MODEL_NAME, name_of(variable))
    master.constraint = getattr(variable, "constraint", None)
    return master


def copy_changes(masters: Iterable[Any], variables: Iterable[Any]) -> None:
    """Update masters from their variables, in case these were changed outside.

    Usually they were not. So all variables are first compared with their rounded
    masters, and masters are written only if one differs.
    """
    pairs = [
        (value_of(master), value_of(variable))
        for master, variable in zip(masters, variables, strict=True)
        if master is not variable
    ]
    if not pairs:
        return

    def write() -> tf.Tensor:
        for own, model in pairs:
            values = follow(own.read_value(), model.read_value())
            own.assign(values, read_value=False)
        return tf.constant(True)

    alike = tf.reduce_all([as_rounded(own, model) for own, model in pairs])
    tf.cond(alike, lambda: tf.constant(False), write)


def as_rounded(master: tf.Variable, model: tf.Variable) -> tf.Tensor:
    """Whether all elements of a master round to its model: bool, 0-d; NaN does not."""
    rounded = saturating_cast(master.read_value(), model.dtype)
    return tf.reduce_all(tf.equal(rounded, model.read_value()))


def copy_back(masters: Iterable[Any], variables: Iterable[Any]) -> None:
    """Round the values of masters into their variables."""
    for master, variable in zip(masters, variables, strict=True):
        if master is not variable:
            own, model = value_of(master), value_of(variable)
            values = saturating_cast(own.read_value(), model.dtype)
            model.assign(values, read_value=False)
