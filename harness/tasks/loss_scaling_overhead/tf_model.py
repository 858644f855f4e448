"""Scaled and clipped steps of Adam in TensorFlow, each a ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import keras
import tensorflow as tf

from harness.tasks.loss_scaling_overhead import CLIP, SCALE
from harness.tasks.overhead.shapes import arrays
from harness.tasks.overhead.tf_model import traced
from harness.timing import Step, Steps, made
from lockstep.tf import (
    AdamOptimizer,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    clip_gradients_by_global_norm,
)


def variants(seed: int, part: str, model: str, device: str) -> Steps:
    """Return the steps to time, made in random order: ``ours``, ``keras``."""
    drawn = [value * SCALE for value in arrays(model, seed=1)]
    gradients = [tf.constant(value, tf.float32) for value in drawn]

    def make(step: Callable[[list, list], Step]) -> Step:
        variables = [tf.Variable(value) for value in arrays(model, seed=0)]
        return traced(step(gradients, variables))

    makers = {"ours": our_step, "keras": keras_step}
    return made({name: partial(make, step) for name, step in makers.items()}, seed)


def our_step(gradients: list, variables: list) -> Step:
    scale = DynamicLossScale(SCALE)
    optimizer = MixedPrecisionLossScaleOptimizer(AdamOptimizer(1e-4), scale)

    @tf.custom_gradient
    def loss(*values: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        """Take no time to compute, nor to differentiate."""
        return tf.constant(0.0), lambda upstream: gradients

    def step() -> None:
        pairs = optimizer.compute_gradients(lambda: loss(*variables), variables)
        clipped, _ = clip_gradients_by_global_norm(pairs, CLIP)
        optimizer.apply_gradients(clipped)

    return step


def keras_step(gradients: list, variables: list) -> Step:
    adam = keras.optimizers.Adam(1e-4, global_clipnorm=CLIP)
    optimizer = keras.optimizers.LossScaleOptimizer(adam, initial_scale=SCALE)
    variables = [keras.Variable(variable) for variable in variables]
    optimizer.build(variables)
    return lambda: optimizer.apply(gradients, variables)
