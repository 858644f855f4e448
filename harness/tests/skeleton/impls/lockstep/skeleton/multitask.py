"""The multitask wrapper."""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.interface import NO_STEP, Array
from lockstep.messages import multitask as messages
from lockstep.messages.skeleton import SKELETON
from lockstep.quirks import quirks_of
from lockstep.skeleton.optimizers.classes import GradientDescentOptimizer, check_pairs
from lockstep.skeleton.tensors.variable import Variable
from lockstep.skeleton.tensors.zero_test import is_all_zero

__all__ = ["MultitaskOptimizerWrapper"]


class MultitaskOptimizerWrapper:
    """Leave a variable alone where its gradient is all zero."""

    def __init__(self, opt: GradientDescentOptimizer, strict: bool = False) -> None:
        self.quirks = quirks_of(strict)
        if not isinstance(opt, GradientDescentOptimizer):
            nesting = self.quirks.multitask_nesting
            raise messages.not_an_optimizer(opt, SKELETON, nesting)
        self.inner_optimizer, self.last_step = opt, NO_STEP

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Array | None, Variable]],
        global_step: Variable | None = None,
    ) -> None:
        """Hand the gradients that are not all zero to the wrapped optimizer."""
        pairs = check_pairs(grads_and_vars, messages.WRAPPER)
        flush = self.quirks.multitask_subnormals
        zero = [g is not None and is_all_zero(g, flush) for g, _ in pairs]
        self.last_step = messages.report(
            [variable.name for _, variable in pairs],
            zero,
            [g is None for g, _ in pairs],
        )
        nonzero = [
            (None if is_zero else gradient, variable)
            for is_zero, (gradient, variable) in zip(zero, pairs, strict=True)
        ]
        self.inner_optimizer.apply_gradients(nonzero, global_step)
