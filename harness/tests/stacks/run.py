"""A run of one stack: three variables, and gradients that change every state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.parity.drivers.protocol import Driver
from harness.tests.stacks.stacks import build, model_of
from lockstep.interface import Array, Gradient, Rows
from lockstep.tests.wrappers import has_masters, skips

STEPS = 50
SHAPES = {"table": (5, 3), "head": (4,), "bias": (3,)}
PATTERNS = (0, 2, 3)
"""Steps that cover every pattern of dense, absent and sparse gradients."""
OVERFLOWS = (4, 5, 18, 31, 32, 33)


def gradients(step: int, dtype: str, overflows: bool) -> list[Gradient]:
    """Return the gradients of a step: of the table, the head and the bias.

    In some steps the head's gradient is absent or all zero. In some steps all gradients
    are zero. In some the table's gradient is sparse and names one row twice.

    Args:
        step: 0, 1, ...
        dtype: of table and head.
        overflows: whether some steps are not finite.
    """
    random = np.random.default_rng(step)
    arrays = [random.normal(size=shape) for shape in SHAPES.values()]
    idle = step % 11 == 7
    if idle or step % 5 == 1:
        arrays[1] = np.zeros(SHAPES["head"])
    if idle:
        arrays = [np.zeros_like(gradient) for gradient in arrays]
    if overflows and step in OVERFLOWS:
        arrays[step % 2].flat[1] = np.nan if step == OVERFLOWS[-1] else np.inf
    table, head, bias = (
        gradient.astype(kind)
        for gradient, kind in zip(arrays, (dtype, dtype, "float32"), strict=True)
    )
    if step % 6 == 2:
        rows = Rows(np.array([3, 0, 3]), table[:3], SHAPES["table"])
        return [rows, head, bias]
    return [table, None if step % 7 == 3 else head, bias]


class Run:
    """One stack on one backend, which is advanced step by step.

    Attributes:
        variables: the model's variables.
        optimizer: the stack.
    """

    def __init__(self, stack: str, driver: Driver) -> None:
        self.stack, self.driver = stack, driver
        self.dtype = "float16" if has_masters(stack) else "float32"
        dtypes = (self.dtype, self.dtype, "float32")
        initial = {
            name: self._initial(shape, dtype)
            for (name, shape), dtype in zip(SHAPES.items(), dtypes, strict=True)
        }
        model = model_of(stack, driver, initial)
        self.variables = list(model.variables)
        self.optimizer = build(stack, driver, model)
        self._step = driver.compile(self._apply)

    @staticmethod
    def _initial(shape: tuple[int, ...], dtype: str) -> Array:
        count = int(np.prod(shape))
        return np.linspace(-1, 1, count).reshape(shape).astype(dtype)

    def _apply(self, arrays: Sequence[Any]) -> None:
        pairs = list(zip(arrays, self.variables, strict=True))
        self.optimizer.apply_gradients(pairs)

    def build(self) -> None:
        """Build every step that a graph will need, and run them."""
        for step in PATTERNS:
            self.advance(step)

    def advance(self, step: int) -> None:
        """Run the step with this number."""
        self._step(gradients(step, self.dtype, skips(self.stack)))
