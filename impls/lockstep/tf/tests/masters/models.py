"""A wrapper with float32 masters at work, and the scales that it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.tf import MixedPrecisionOptimizerWrapper

__all__ = ["BRAIN", "HALF", "RANDOM", "START", "STEPS", "Training", "masters"]

HALF, BRAIN = np.float16, tf.bfloat16.as_numpy_dtype
RANDOM = np.random.default_rng(5)
START = RANDOM.normal(size=(3, 2)).astype(np.float32)
STEPS = [RANDOM.normal(size=(3, 2)).astype(np.float32) for _ in range(4)]


class Training:
    """A wrapper at work on some variables of one driver."""

    def __init__(self, driver: Any, wrap: Callable[[Any], Any], *values: Any) -> None:
        self.driver = driver
        self.variables = [driver.variable(f"w{i}", v) for i, v in enumerate(values)]
        self.counter = driver.counter()
        self.base = driver.optimizer("Adam", {"learning_rate": 0.01}, self.variables)
        self.wrapper = wrap(self.base)
        self.traces = 0
        self.step = driver.compile(self.train)

    def train(self, gradients: list[Any]) -> Any:
        self.traces += 1
        loss = self.driver.linear_loss(self.variables, gradients)
        pairs = self.wrapper.compute_gradients(loss, self.variables)
        applied = self.wrapper.apply_gradients(pairs, self.counter)
        return [applied, *[gradient for gradient, _ in pairs]]

    def masters(self) -> list[Any]:
        return [self.driver.read(self.wrapper.master(v)) for v in self.variables]

    def state(self) -> list[bytes]:
        """Return the bits of everything that a step may change but the scale."""
        owned = [self.wrapper.master(variable) for variable in self.variables]
        parts = [self.driver.read(v) for v in (*self.variables, *owned, self.counter)]
        parts += [self.driver.slot(self.base, m, s) for m in owned for s in ("m", "v")]
        parts += self.driver.shared(self.base).values()
        return [part.tobytes() for part in parts]


def masters(loss_scale: Any = None, **arguments: Any) -> Callable[[Any], Any]:
    """Wrap with masters."""
    return lambda opt: MixedPrecisionOptimizerWrapper(opt, loss_scale, **arguments)
