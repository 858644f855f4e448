"""Steps of Keras' Adam on masters, with scaled float16 gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from harness.tasks.masters_overhead import CLIP, SCALE
from harness.tasks.overhead.keras_model import keras_variables
from harness.tasks.overhead.shapes import arrays
from harness.tasks.overhead.tf_model import traced
from harness.timing import Makers, Step
from lockstep.keras3 import MixedPrecisionOptimizerWrapper


def makers(seed: int, device: str, model: str, jit: str = "") -> Makers:
    """Return the builder of each step: ``ours``, ``loop``."""
    values = [value * SCALE for value in arrays(model, seed=1)]
    gradients = [tf.constant(value, tf.float16) for value in values]

    def make(step: Callable[[list[Any], list[Any]], Step]) -> Step:
        return traced(step(gradients, keras_variables(model, "float16")), jit)

    kinds = {"ours": our_step, "loop": loop_step}
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(gradients: list[Any], variables: list[Any]) -> Step:
    """Return a scaled and clipped step of our masters around Keras' Adam."""
    adam = keras.optimizers.Adam(1e-4)
    optimizer = MixedPrecisionOptimizerWrapper(adam, SCALE, clip_norm=CLIP)
    optimizer.build(variables)

    def step() -> None:
        optimizer.scale_loss(tf.constant(0.0))
        optimizer.apply(gradients, variables)

    return step


def loop_step(gradients: list[Any], variables: list[Any]) -> Step:
    """Return the naive loop, which copies each tensor to its master and back."""
    masters = [keras.Variable(variable, dtype="float32") for variable in variables]
    optimizer = keras.optimizers.Adam(1e-4, global_clipnorm=CLIP)
    optimizer.build(masters)

    def step() -> None:
        wide = [tf.cast(gradient, tf.float32) / SCALE for gradient in gradients]
        optimizer.apply(wide, masters)
        for variable, master in zip(variables, masters, strict=True):
            variable.assign(tf.cast(master.value, tf.float16))

    return step
