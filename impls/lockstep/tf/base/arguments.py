"""Checks of hyper-parameters when an optimizer is created."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.optimizers import RULES

__all__ = ["check_arguments"]


def check_arguments(optimizer: str, **given: Any) -> None:
    """Raise OutOfRangeError for a number that is outside of its range.

    Tensors, variables and callables are not checked: their values are not known yet.
    """
    spec = RULES[optimizer]
    for parameter in spec.parameters:
        if parameter.name not in given:
            continue
        value = given[parameter.name]
        if not callable(value) and not tf.is_tensor(value):
            parameter.check(spec.class_name, value)
