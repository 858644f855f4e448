"""Gradient accumulation over micro-batches; sparse gradients stay sparse."""

from __future__ import annotations

import numpy as np

from lockstep.interface import Array, Gradient, Rows
from lockstep.reference.tensors.rows import densify

__all__ = ["add_share"]


def add_share(total: Gradient, gradient: Gradient, iter_size: int) -> Gradient:
    """Return total + gradient / iter_size, rounded to the gradient's dtype twice.

    If one of them is None, it adds nothing. The sum of two sparse gradients has all
    their rows in order; the sum of a sparse and a dense gradient is dense.
    """
    if gradient is None:
        return total
    share = divided(gradient, iter_size)
    if total is None:
        return share
    if isinstance(total, Rows) and isinstance(share, Rows):
        indices = np.concatenate([total.indices, share.indices])
        values = np.concatenate([total.values, share.values])
        return Rows(indices, values, total.dense_shape or share.dense_shape)
    with np.errstate(all="ignore"):
        return np.asarray(dense_like(total, share) + dense_like(share, total))


def divided(gradient: Array | Rows, iter_size: int) -> Array | Rows:
    """Return gradient / iter_size."""
    if isinstance(gradient, Rows):
        return gradient._replace(values=gradient.values / quotient(gradient, iter_size))
    return np.asarray(gradient / quotient(gradient, iter_size))


def quotient(gradient: Array | Rows, iter_size: int) -> Array:
    """Return the number of micro-batches in the dtype of a gradient."""
    values = gradient.values if isinstance(gradient, Rows) else gradient
    return np.asarray(iter_size, values.dtype)


def dense_like(gradient: Array | Rows, other: Array | Rows) -> Array:
    """Return a gradient as an array; rows get the shape of ``other``."""
    if not isinstance(gradient, Rows):
        return gradient
    assert not isinstance(other, Rows)
    return densify(gradient, other.shape)
