"""The variants of a step in TensorFlow, each a ``tf.function`` with its own state."""

from __future__ import annotations

import random
from collections.abc import Callable

import keras
import tensorflow as tf

from harness.tasks.multitask_overhead.models import arrays, zero_flags
from harness.timing import Steps
from lockstep.tf import AdamOptimizer, MultitaskOptimizerWrapper


def variants(seed: int, model: str, zeros: str, device: str) -> Steps:
    """Return the steps to time, made in random order: ``ours``, ``bare``, ``loop``."""
    one_thread()
    flags, drawn = zero_flags(model, zeros), arrays(model, seed=1)
    gradients = [
        tf.constant(g * (not is_zero)) for g, is_zero in zip(drawn, flags, strict=True)
    ]
    makers = {"ours": wrapped_step, "bare": bare_step, "loop": loop_step}
    made = {}
    for name in random.Random(seed).sample(sorted(makers), len(makers)):
        variables = [tf.Variable(value) for value in arrays(model, seed=0)]
        made[name] = tf.function(makers[name](gradients, variables))
    return made


def one_thread() -> None:
    """Use one thread; TensorFlow takes this only before its first operation."""
    if tf.config.threading.get_intra_op_parallelism_threads() != 1:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def bare_step(gradients: list, variables: list) -> Callable[[], None]:
    optimizer = AdamOptimizer(1e-4)
    return lambda: apply(optimizer, gradients, variables)


def wrapped_step(gradients: list, variables: list) -> Callable[[], None]:
    optimizer = MultitaskOptimizerWrapper(AdamOptimizer(1e-4))
    return lambda: apply(optimizer, gradients, variables)


def apply(optimizer: tf.compat.v1.train.Optimizer, gradients: list, variables: list):
    optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))


def loop_step(gradients: list, variables: list) -> Callable[[], None]:
    """The way one writes it first: a condition a variable around Keras' update."""
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
    optimizer.update_step(gradient, variable, rate)
    return tf.constant(0)
