"""Workers of AGN on small models of Keras, and what they hold."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep import keras3

__all__ = [
    "INPUTS",
    "TARGETS",
    "model",
    "same",
    "shared",
    "single",
    "step",
    "weights",
    "worker_of",
]

INPUTS = np.float32([[1, 2], [3, -1], [0, 1], [2, 2]])
TARGETS = np.float32([[1], [-1], [2], [0]])


def model(seed: int = 0) -> keras.Model:
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(3, "tanh", name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, name="head")(hidden))


def worker_of(trained: keras.Model, center: Any = None, **options: Any) -> Any:
    """Return a worker that trains a model, every other step with the others."""
    names = options.pop("names", keras3)
    rule = options.pop("rule", None) or keras.optimizers.SGD(0.125, momentum=0.5)
    getter = names.AGNCustomGetter("/cpu:0", center)
    getter(trained)
    period = options.pop("communication_period", 2)
    return names.AGNOptimizer(rule, 2, getter, period, **options)


def single(
    rule: Any = None, value: Any = (1.0, 2.0), **options: Any
) -> tuple[keras.Variable, Any]:
    """Return a variable and a worker that trains it."""
    variable = keras.Variable(np.float32(value), name="w")
    names = options.pop("names", keras3)
    getter = names.AGNCustomGetter("/cpu:0")
    getter([variable])
    rule = rule or keras.optimizers.SGD(0.5)
    return variable, names.AGNOptimizer(rule, 1, getter, **options)


def weights(trained: keras.Model) -> list[Any]:
    return [v.numpy() for v in trained.trainable_variables]


def shared(worker: Any) -> list[Any]:
    return [v.numpy() for v in worker.custom_getter.center.shared.values()]


def same(one: list[Any], other: list[Any]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def step(trained: keras.Model, worker: Any, row: int) -> None:
    """Train on one row."""
    with tf.GradientTape() as tape:
        loss = keras.ops.mean(
            (trained(INPUTS[row : row + 1]) - TARGETS[row : row + 1]) ** 2
        )
    variables = trained.trainable_variables
    values = [variable.value for variable in variables]
    worker.apply(tape.gradient(loss, values), variables)
