"""Workers of AGN on small models of Keras, with a center of their process or served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep.keras3 import AGNCustomGetter, AGNOptimizer
from lockstep.keras3.agn import RemoteCenter
from lockstep.ray.tests.local_host import LocalHost

INPUTS = np.float32([[1, 2], [3, -1], [0, 1], [2, 2]])
TARGETS = np.float32([[1], [-1], [2], [0]])
Bits = list[bytes]


def model(seed: int = 0) -> keras.Model:
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((2,))
    hidden = keras.layers.Dense(3, "tanh", name="hidden")(inputs)
    return keras.Model(inputs, keras.layers.Dense(1, name="head")(hidden))


def momentum() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.125, momentum=0.5)


def bits(variables: Any) -> Bits:
    return [np.asarray(variable).tobytes() for variable in variables]


class Team:
    """Workers of a served center, or of one in this process without a host."""

    def __init__(
        self,
        make: Callable[[], keras.optimizers.Optimizer] = momentum,
        host: LocalHost | None = None,
        count: int = 2,
        period: int = 2,
        commit: str = "gradient",
    ) -> None:
        self.host = host
        self.models = [model(number) for number in range(count)]
        self.workers: list[Any] = []
        self.center: Any = None
        for trained in self.models:
            center = self.center if host is None else RemoteCenter(host)
            getter = AGNCustomGetter("/cpu:0", center)
            getter(trained)
            worker = AGNOptimizer(make(), count, getter, period, commit=commit)
            worker.get_init_op(0)
            self.center = getter.center
            self.workers.append(worker)

    def step(self, number: int, row: int) -> None:
        """Let a worker train on one row."""
        trained, row = self.models[number], row % len(INPUTS)
        with tf.GradientTape() as tape:
            outputs = trained(INPUTS[row : row + 1])
            loss = keras.ops.mean((outputs - TARGETS[row : row + 1]) ** 2)
        variables = trained.trainable_variables
        values = [variable.value for variable in variables]
        self.workers[number].apply(tape.gradient(loss, values), variables)

    def weights(self, number: int) -> Bits:
        """Return the bits of a worker's variables."""
        return bits(self.models[number].trainable_variables)

    def shared(self) -> Bits:
        """Return the bits of the shared variables."""
        if self.host is None:
            return bits(self.center.shared.values())
        assert self.host.center is not None
        return bits(self.host.center.present().values())


def single(
    rule: Any = None, value: Any = (1.0, 2.0), period: int = 10
) -> tuple[keras.Variable, Any]:
    """Return a variable and a worker that trains it."""
    variable = keras.Variable(np.float32(value), name="w")
    getter = AGNCustomGetter("/cpu:0")
    getter([variable])
    rule = rule or keras.optimizers.SGD(0.5)
    return variable, AGNOptimizer(rule, 1, getter, period)
