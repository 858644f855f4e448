"""The optimizers of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockstep.interface import Array
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.optimizers.parameters import OPTIMIZERS
from lockstep.messages.skeleton import NOT_A_VARIABLE
from lockstep.skeleton.tensors.variable import Variable

__all__ = ["GradientDescentOptimizer", "check_pairs"]

Pairs = list[tuple[Array | None, Variable]]


class GradientDescentOptimizer:
    """w -= lr g, in the dtype of w."""

    def __init__(self, *args: Any, strict: bool = False, **kwargs: Any) -> None:
        self.arguments = OPTIMIZERS["GradientDescent"].bind(args, kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Array | None, Variable]],
        global_step: Variable | None = None,
    ) -> None:
        """Update the variables; ``global_step``, if given, is advanced by one."""
        pairs = check_pairs(grads_and_vars, "GradientDescentOptimizer")
        for gradient, variable in pairs:
            if gradient is not None:
                rate = variable.value.dtype.type(self.arguments["learning_rate"])
                variable.value = variable.value - rate * gradient
        if global_step is not None:
            global_step.value = global_step.value + 1


def check_pairs(
    grads_and_vars: Iterable[tuple[Array | None, Variable]], owner: str
) -> Pairs:
    """Return the pairs as a list; raise for what is no variable."""
    pairs: Pairs = as_pairs(grads_and_vars, owner)
    for _, variable in pairs:
        if not isinstance(variable, Variable):
            raise NOT_A_VARIABLE.error(owner=owner, got=type(variable).__name__)
    return pairs
