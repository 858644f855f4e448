"""Averaging gradients over ranks; without a ``reduction`` there is only one rank."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.step import reduction as words
from lockstep.messages.step import refusals
from lockstep.messages.step.reduction import Reduction
from lockstep.reference.base.pairs import Pairs
from lockstep.reference.tensors.rows import densify
from lockstep.reference.tensors.variable import Variable

__all__ = ["reduce_gradients"]


@documented
def reduce_gradients(
    grads_and_vars: Iterable[tuple[Gradient, Variable]],
    on_horovod: bool,
    model: object = None,
    reduction: Reduction | None = None,
) -> Pairs:
    """Return each gradient's mean over the ranks.

    ...
    """
    words.check_arguments(on_horovod, reduction)
    pairs = as_pairs(grads_and_vars, words.REDUCE)
    if reduction is None or reduction.size == 1:
        return pairs
    present = list(reduction.any([gradient is not None for gradient, _ in pairs]))
    held = [
        pair for pair, has_gradient in zip(pairs, present, strict=True) if has_gradient
    ]
    means = list(reduction.all_reduce([dense(*pair) for pair in held]))
    if len(means) != len(held):
        raise refusals.OTHER_NUMBER_OF_MEANS.error(expected=len(held), got=len(means))
    left = iter(means)
    return [
        (next(left) if has_gradient else None, variable)
        for (_, variable), has_gradient in zip(pairs, present, strict=True)
    ]


def dense(gradient: Gradient, variable: Variable) -> Array:
    """Return a gradient as a dense array; zeros if it is None."""
    if gradient is None:
        return np.zeros(variable.shape, variable.dtype)
    if isinstance(gradient, Rows):
        return densify(gradient, variable.shape)
    return gradient
