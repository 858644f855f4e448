"""A worker with one weight on every backend, which is stepped with arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep import registry
from lockstep.interface import Array
from lockstep.ray import RayCenter
from lockstep.ray.center import RayHost
from lockstep.ray.worker import RemoteView

START = np.float32([1.0, -2.0])
RATE = 0.3


class SmallWorker:
    """A worker of one backend that trains ``w`` by gradient descent.

    Args:
        center: what its getter takes.
        start: the first value of ``w``.
        options: of ``AGNOptimizer``.
    """

    def __init__(self, center: Any, start: Any = START, **options: Any) -> None:
        options = {"commit": "delta", "communication_period": 2, **options}
        self.variable = self.make_variable(start)
        self.getter = self.package.AGNCustomGetter("cpu", center)
        self.entered = self.getter([("w", self.variable)])
        rule = self.make_rule()
        self.optimizer = self.package.AGNOptimizer(rule, 1, self.getter, **options)

    package: Any
    make_variable: Callable[[Any], Any]
    make_rule: Callable[[], Any]

    def start(self) -> SmallWorker:
        self.optimizer.get_init_op(0)
        return self

    def step(self, gradient: Any) -> None:
        self.optimizer.apply_gradients([(self.tensor(gradient), self.variable)])

    def tensor(self, gradient: Any) -> Any:
        return gradient

    def value(self) -> Any:
        return self.variable.numpy().copy()


class Torch(SmallWorker):
    """A worker in PyTorch."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        import torch

        from lockstep import pytorch

        self.package, self.torch = pytorch, torch
        super().__init__(*arguments, **options)

    def make_variable(self, start: Any) -> Any:
        return self.torch.nn.Parameter(self.torch.tensor(start))

    def make_rule(self) -> Any:
        return self.torch.optim.SGD(self.entered, lr=RATE)

    def tensor(self, gradient: Any) -> Any:
        return self.torch.tensor(gradient)

    def value(self) -> Any:
        return self.variable.detach().numpy().copy()


class Keras(SmallWorker):
    """A worker in Keras 3."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        import keras

        from lockstep import keras3

        self.package, self.keras = keras3, keras
        super().__init__(*arguments, **options)

    def make_variable(self, start: Any) -> Any:
        return self.keras.Variable(start, name="w")

    def make_rule(self) -> Any:
        return self.keras.optimizers.SGD(RATE)


class TensorFlow(SmallWorker):
    """A worker in eager TensorFlow."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        import tensorflow

        from lockstep import tf

        self.package, self.tensorflow = tf, tensorflow
        super().__init__(*arguments, **options)

    def make_variable(self, start: Any) -> Any:
        return self.tensorflow.Variable(start, name="w")

    def make_rule(self) -> Any:
        return self.package.GradientDescentOptimizer(RATE)

    def tensor(self, gradient: Any) -> Any:
        return self.tensorflow.constant(gradient)


class NumpyView(RemoteView):
    """The view of a worker that has one weight, ``w``, and no framework."""

    backend = "numpy"

    def __init__(self, center: RayCenter, weight: Array) -> None:
        super().__init__(RayHost(center))
        self.weight = weight
        self.begin("delta")
        self.pull()

    def arrays(self) -> dict[str, Array]:
        return {"w": self.weight}

    def pull(self) -> None:
        self.weight = np.array(self.member.pull(["w"])["w"])


WORKERS: dict[str, type[SmallWorker]] = {
    "pytorch": Torch,
    "keras3": Keras,
    "tf": TensorFlow,
}


def remote_center(backend: str, host: Any) -> Any:
    """Return the view that a worker of a backend has of a center."""
    registry.load(backend)
    name = "agn" if backend == "keras3" else "agn_center"
    module = __import__(f"lockstep.{backend}.{name}", fromlist=["RemoteCenter"])
    return module.RemoteCenter(host)
