"""LARC in Keras 3, between the backward pass and the step.

The scaled gradients are returned, because tensors are not changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from harness.tasks.larc_overhead import EPSILON, ETA, RATE
from harness.tasks.overhead.keras_model import keras_variables
from harness.tasks.overhead.shapes import arrays
from harness.tasks.overhead.tf_model import traced
from harness.timing import Makers, Step
from lockstep.keras3 import post_process_gradients

Scaled = Callable[[], list[Any]]


def makers(seed: int, device: str, model: str, jit: str = "") -> Makers:
    """Return the builder of each step: ``ours``, ``loop``."""
    gradients = [tf.constant(value) for value in arrays(model, seed=1)]

    def make(step: Callable[[list[Any], list[Any]], Scaled]) -> Step:
        variables = keras_variables(model)
        return traced(step(gradients, variables), jit)

    kinds = {"ours": our_step, "loop": loop_step}
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(gradients: list[Any], variables: list[Any]) -> Scaled:
    """Return a step that scales the gradients by ``post_process_gradients``."""
    larc_params = {"larc_eta": ETA, "epsilon": EPSILON}
    pairs = list(zip(gradients, variables, strict=True))

    def step() -> list[Any]:
        processed = post_process_gradients(pairs, [], RATE, None, larc_params)
        return [gradient for gradient, _ in processed]

    return step


def loop_step(gradients: list[Any], variables: list[Any]) -> Scaled:
    """Return the naive loop, which scales one tensor after the other."""

    def step() -> list[Any]:
        pairs = zip(gradients, variables, strict=True)
        return [scaled(gradient, variable) for gradient, variable in pairs]

    return step


def scaled(gradient: Any, variable: Any) -> Any:
    """Return a gradient times its local rate; with a norm of 0 it is unchanged."""
    weight_norm, gradient_norm = keras.ops.norm(variable), keras.ops.norm(gradient)
    rate = keras.ops.minimum(ETA * weight_norm / (gradient_norm + EPSILON) / RATE, 1.0)
    is_scaled = keras.ops.logical_and(weight_norm != 0, gradient_norm != 0)
    return gradient * keras.ops.where(is_scaled, rate, 1.0)
