"""Workers of TensorFlow on a served center, or on one of this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep import tf as lockstep_tf
from lockstep.ray.tests.local_host import LocalHost
from lockstep.tf.workers.remote import RemoteCenter

__all__ = ["Team"]

START = np.float32([[1.0, -2.0, 0.5], [3.0, 0.25, -1.0]])


class Team:
    """Workers with two variables each, on a served center or on one of one process."""

    def __init__(
        self,
        make: Callable[[], Any],
        host: LocalHost | None,
        count: int = 3,
        names: Any = lockstep_tf,
        period: int = 2,
        around: Callable[[Any, Any], Any] = lambda rule, _: rule,
    ) -> None:
        self.host = host
        self.variables: list[Any] = []
        self.workers: list[Any] = []
        center = None
        for number in range(count):
            center = center if host is None else RemoteCenter(host)
            weights = {"w": tf.Variable(START + number), "b": tf.Variable(0.5)}
            getter = names.AGNCustomGetter("/cpu:0", center)
            getter(list(weights.items()))
            center = getter.center
            rule = around(make(), weights)
            worker = names.AGNOptimizer(rule, count, getter, period)
            worker.get_init_op(number)
            self.variables.append(list(weights.values()))
            self.workers.append(worker)

    def step(self, number: int, seed: int, scales: Any = (1.0, 1.0)) -> None:
        random = np.random.default_rng(seed)
        variables = self.variables[number]
        gradients = [
            np.float32(random.normal(size=variable.shape) * scale)
            for variable, scale in zip(variables, scales, strict=True)
        ]
        pairs = zip(map(tf.constant, gradients), variables, strict=True)
        self.workers[number].apply_gradients(list(pairs))

    def bits(self, number: int) -> list[bytes]:
        return [variable.numpy().tobytes() for variable in self.variables[number]]

    def shared(self) -> list[bytes]:
        if self.host is None:
            shared = self.workers[0].custom_getter.center.shared.values()
            return [variable.numpy().tobytes() for variable in shared]
        assert self.host.center is not None
        return [array.tobytes() for array in self.host.center.present().values()]
