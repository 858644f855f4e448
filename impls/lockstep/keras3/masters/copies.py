"""The float32 masters of half-precision variables: made, followed, rounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from lockstep.keras3.base.gradients import MODEL_NAME, name_of, value_of
from lockstep.tf.shared.masters.casts import follow, saturating_cast

__all__ = ["copy_back", "make_master", "take_over"]


def make_master(optimizer: keras.optimizers.Optimizer, variable: Any) -> keras.Variable:
    """Make a float32 variable of ``optimizer`` that starts at the value of another.

    It obeys the constraint of ``variable``, which Keras asks what it updates for.
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


def take_over(masters: Iterable[Any], variables: Iterable[Any]) -> None:
    """Take over into masters what others have written into their variables."""
    for master, variable in zip(masters, variables, strict=True):
        if master is not variable:
            own, model = value_of(master), value_of(variable)
            values = follow(own.read_value(), model.read_value())
            own.assign(values, read_value=False)


def copy_back(masters: Iterable[Any], variables: Iterable[Any]) -> None:
    """Round what masters hold now into their variables."""
    for master, variable in zip(masters, variables, strict=True):
        if master is not variable:
            own, model = value_of(master), value_of(variable)
            values = saturating_cast(own.read_value(), model.dtype)
            model.assign(values, read_value=False)
