"""Scaled and clipped steps of Adam in TensorFlow, each a ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import keras
import tensorflow as tf

from harness.tasks.loss_scaling_overhead import CLIP, SCALE
from harness.tasks.overhead.shapes import arrays
from harness.tasks.overhead.tf_model import traced
from harness.timing import Makers, Step
from lockstep.tf import (
    AdamOptimizer,
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
    clip_gradients_by_global_norm,
)


def makers(seed: int, device: str, part: str, model: str) -> Makers:
    """Return the builder of each step: ``ours``, ``fixed``, ``keras``, ``bare``."""
    values = [value * SCALE for value in arrays(model, seed=1)]
    gradients = [tf.constant(value, tf.float32) for value in values]

    def make(step: Callable[[list, list], Step]) -> Step:
        variables = [tf.Variable(value) for value in arrays(model, seed=0)]
        return traced(step(gradients, variables))

    kinds = {
        "ours": partial(our_step, DynamicLossScale),
        "fixed": partial(our_step, FixedLossScale),
        "keras": keras_step,
        "bare": bare_step,
    }
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(scale: Callable, gradients: list, variables: list) -> Step:
    """Return a scaled and clipped step of our wrapper around Adam."""
    optimizer = MixedPrecisionLossScaleOptimizer(AdamOptimizer(1e-4), scale(SCALE))

    @tf.custom_gradient
    def loss(*values: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        """Return 0 and the drawn gradients, at almost no cost."""
        return tf.constant(0.0), lambda upstream: gradients

    def step() -> None:
        pairs = optimizer.compute_gradients(lambda: loss(*variables), variables)
        clipped, _ = clip_gradients_by_global_norm(pairs, CLIP)
        optimizer.apply_gradients(clipped)

    return step


def keras_step(gradients: list, variables: list) -> Step:
    """Return a scaled and clipped step of Keras' ``LossScaleOptimizer``."""
    adam = keras.optimizers.Adam(1e-4, global_clipnorm=CLIP)
    optimizer = keras.optimizers.LossScaleOptimizer(adam, initial_scale=SCALE)
    variables = [keras.Variable(variable) for variable in variables]
    optimizer.build(variables)
    return lambda: optimizer.apply(gradients, variables)


def bare_step(gradients: list, variables: list) -> Step:
    """Return a step of Adam that neither scales nor clips."""
    optimizer = AdamOptimizer(1e-4)
    pairs = list(zip(gradients, variables, strict=True))

    def step() -> None:
        optimizer.apply_gradients(pairs)

    return step
