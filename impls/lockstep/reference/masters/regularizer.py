"""Regularizers whose gradient is computed at the float32 master of a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.masters import mixed_precision as words
from lockstep.reference.tensors.rows import densify
from lockstep.reference.tensors.variable import Variable

__all__ = ["REGISTERED", "add_penalty", "mp_regularizer_wrapper"]

Regularizer = Callable[..., Array]

REGISTERED: WeakKeyDictionary[Variable, Regularizer] = WeakKeyDictionary()
"""Half-precision weight -> its regularizer; the weights are held weakly."""


@documented
def mp_regularizer_wrapper(regularizer: Regularizer) -> Callable[[Variable], Any]:
    """Leave the regularization of half-precision weights to the optimizer.

    A loss here is its gradients, so ``regularizer(weight)`` returns the gradient of the
    penalty at ``weight``.

    Returns:
        A function of a weight. In half precision it registers the weight and returns
        None, because the wrapper adds the gradient at the float32 master. Otherwise it
        returns ``regularizer(weight)``; more arguments, such as d loss, are passed on.
    """
    words.check_regularizer(regularizer)

    def register(weight: Variable, *upstream: Any) -> Array | None:
        if not words.has_master(str(weight.dtype)):
            return regularizer(weight, *upstream)
        REGISTERED[weight] = regularizer
        return None

    return register


def add_penalty(gradient: Gradient, penalty: Array) -> Array:
    """Add the gradient of a penalty [d0, ...]; rows become dense, None counts as 0."""
    if gradient is None:
        return penalty
    if isinstance(gradient, Rows):
        gradient = densify(gradient, penalty.shape)
    with np.errstate(all="ignore"):
        return np.asarray(gradient + penalty)
