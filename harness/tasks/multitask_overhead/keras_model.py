"""The variants of a step in Keras 3, each a ``tf.function`` with its own state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from harness.tasks.multitask_overhead.zeros import zero_flags
from harness.tasks.overhead.keras_model import keras_variables
from harness.tasks.overhead.shapes import arrays
from harness.tasks.overhead.tf_model import traced
from harness.timing import Makers, Step
from lockstep.keras3 import MultitaskOptimizerWrapper


def makers(seed: int, device: str, model: str, zeros: str, jit: str = "") -> Makers:
    """Return the builder of each step: ``ours``, ``bare``."""
    flags, values = zero_flags(model, zeros), arrays(model, seed=1)
    gradients = [
        tf.constant(g * (not is_zero)) for g, is_zero in zip(values, flags, strict=True)
    ]

    def make(wrap: Callable[[Any], Any]) -> Step:
        variables = keras_variables(model)
        optimizer = wrap(keras.optimizers.Adam(1e-4))
        optimizer.build(variables)
        return traced(lambda: optimizer.apply(gradients, variables), jit)

    kinds = {"ours": MultitaskOptimizerWrapper, "bare": lambda adam: adam}
    return {name: partial(make, wrap) for name, wrap in kinds.items()}
