"""Steps of NovoGrad in Keras 3, each a ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from harness.tasks.novograd_overhead import BETA1, BETA2, EPSILON, RATE
from harness.tasks.overhead.keras_model import keras_variables
from harness.tasks.overhead.shapes import arrays
from harness.tasks.overhead.tf_model import traced
from harness.timing import Makers, Step
from lockstep.keras3 import NovoGrad


def makers(seed: int, device: str, model: str, jit: str = "") -> Makers:
    """Return the builder of each step: ``ours``, ``loop``."""
    gradients = [tf.constant(value) for value in arrays(model, seed=1)]

    def make(step: Callable[[list[Any], list[Any]], Step]) -> Step:
        return traced(step(gradients, keras_variables(model)), jit)

    kinds = {"ours": our_step, "loop": loop_step}
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(gradients: list[Any], variables: list[Any]) -> Step:
    """Return a step of our optimizer."""
    optimizer = NovoGrad(RATE)
    optimizer.build(variables)
    return lambda: optimizer.apply(gradients, variables)


def loop_step(gradients: list[Any], variables: list[Any]) -> Step:
    """Return the naive loop over tensors, in plain operations of Keras."""
    ops = keras.ops
    momenta = [keras.Variable(ops.zeros_like(variable)) for variable in variables]
    moments = [keras.Variable(0.0) for _ in variables]

    def step() -> None:
        state = zip(gradients, variables, momenta, moments, strict=True)
        for gradient, variable, momentum, moment in state:
            square = ops.sum(ops.square(gradient))
            mixed = BETA2 * moment + (1 - BETA2) * square
            moment.assign(ops.where(moment == 0, square, mixed))
            direction = gradient / ops.sqrt(moment + EPSILON)
            momentum.assign(BETA1 * momentum + direction)
            variable.assign(variable - RATE * momentum)

    return step
