"""The float32 masters of half-precision variables: made, followed, rounded."""

from __future__ import annotations

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


def take_over(master: Any, variable: Any) -> None:
    """Take over into the master what others have written into ``variable``."""
    master, variable = value_of(master), value_of(variable)
    values = follow(master.read_value(), variable.read_value())
    master.assign(values, read_value=False)


def copy_back(master: Any, variable: Any) -> None:
    """Round what a master holds now into its variable."""
    master, variable = value_of(master), value_of(variable)
    values = saturating_cast(master.read_value(), variable.dtype)
    variable.assign(values, read_value=False)
