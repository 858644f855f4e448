"""The variants of a step in TensorFlow, each a ``tf.function`` with its own state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import keras
import tensorflow as tf

from harness.tasks.multitask_overhead.zeros import zero_flags
from harness.tasks.overhead.shapes import arrays
from harness.timing import Makers, Step
from lockstep.tf import AdamOptimizer, MultitaskOptimizerWrapper


def makers(seed: int, device: str, model: str, zeros: str) -> Makers:
    """Return the builder of each step: ``ours``, ``bare``, ``loop``."""
    flags, values = zero_flags(model, zeros), arrays(model, seed=1)
    gradients = [
        tf.constant(g * (not is_zero)) for g, is_zero in zip(values, flags, strict=True)
    ]

    def make(step: Callable[[list, list], Step]) -> Step:
        variables = [tf.Variable(value) for value in arrays(model, seed=0)]
        return tf.function(step(gradients, variables))

    kinds = {"ours": wrapped_step, "bare": bare_step, "loop": loop_step}
    return {name: partial(make, step) for name, step in kinds.items()}


def bare_step(gradients: list, variables: list) -> Step:
    """Return a step of Adam."""
    optimizer = AdamOptimizer(1e-4)
    return lambda: apply(optimizer, gradients, variables)


def wrapped_step(gradients: list, variables: list) -> Step:
    """Return a step of our wrapper around Adam."""
    optimizer = MultitaskOptimizerWrapper(AdamOptimizer(1e-4))
    return lambda: apply(optimizer, gradients, variables)


def apply(optimizer: tf.compat.v1.train.Optimizer, gradients: list, variables: list):
    """Apply the gradients to the variables."""
    optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))


def loop_step(gradients: list, variables: list) -> Step:
    """Return the naive loop, with a condition for each variable."""
    optimizer = keras.optimizers.Adam(1e-4)
    variables = [keras.Variable(v) for v in variables]
    optimizer.build(variables)

    def step() -> None:
        rate = tf.convert_to_tensor(optimizer.learning_rate)
        for gradient, variable in zip(gradients, variables, strict=True):
            tf.cond(
                tf.math.count_nonzero(gradient) > 0,
                lambda g=gradient, v=variable: update(optimizer, g, v, rate),
                lambda: tf.constant(0),
            )
        optimizer.iterations.assign_add(1)

    return step


def update(optimizer, gradient, variable, rate) -> tf.Tensor:
    """Update one variable by Keras' rule; return 0, which ``tf.cond`` needs."""
    optimizer.update_step(gradient, variable, rate)
    return tf.constant(0)
