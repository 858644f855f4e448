"""Scaled and clipped steps of Keras' Adam, each a ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from harness.tasks.loss_scaling_overhead import CLIP, SCALE
from harness.tasks.overhead.keras_model import keras_variables
from harness.tasks.overhead.shapes import arrays
from harness.tasks.overhead.tf_model import traced
from harness.timing import Makers, Step
from lockstep.keras3 import (
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
)


def makers(seed: int, device: str, part: str, model: str, jit: str = "") -> Makers:
    """Return the builder of each step: ``ours``, ``fixed``, ``keras``, ``bare``."""
    values = [value * SCALE for value in arrays(model, seed=1)]
    gradients = [tf.constant(value, tf.float32) for value in values]

    def make(step: Callable[[list[Any], list[Any]], Step]) -> Step:
        return traced(step(gradients, keras_variables(model)), jit)

    kinds: dict[str, Callable[[list[Any], list[Any]], Step]] = {
        "ours": partial(our_step, DynamicLossScale),
        "fixed": partial(our_step, FixedLossScale),
        "keras": keras_step,
        "bare": bare_step,
    }
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(
    scale: Callable[[float], Any], gradients: list[Any], variables: list[Any]
) -> Step:
    """Return a scaled and clipped step of our wrapper around Keras' Adam.

    ``scale_loss`` is called first, because ``apply`` unscales gradients made after it.
    """
    adam = keras.optimizers.Adam(1e-4)
    optimizer = MixedPrecisionLossScaleOptimizer(adam, scale(SCALE), clip_norm=CLIP)
    optimizer.build(variables)

    def step() -> None:
        optimizer.scale_loss(tf.constant(0.0))
        optimizer.apply(gradients, variables)

    return step


def keras_step(gradients: list[Any], variables: list[Any]) -> Step:
    """Return a scaled and clipped step of Keras' ``LossScaleOptimizer``."""
    adam = keras.optimizers.Adam(1e-4, global_clipnorm=CLIP)
    optimizer = keras.optimizers.LossScaleOptimizer(adam, initial_scale=SCALE)
    optimizer.build(variables)
    return lambda: optimizer.apply(gradients, variables)


def bare_step(gradients: list[Any], variables: list[Any]) -> Step:
    """Return a step of Keras' Adam that neither scales nor clips."""
    optimizer = keras.optimizers.Adam(1e-4)
    optimizer.build(variables)
    return lambda: optimizer.apply(gradients, variables)
