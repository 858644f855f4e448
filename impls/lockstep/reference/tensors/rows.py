"""Sparse gradients: sum duplicate rows, or convert to a dense array."""

from __future__ import annotations

import numpy as np

from lockstep.interface import Array, Rows

__all__ = ["densify", "sum_duplicates"]


def sum_duplicates(gradient: Rows) -> Rows:
    """Sum the rows that share an index, in the order of their occurrence.

    ``values`` [k, ...] becomes [u, ...] with u distinct, ascending ``indices``. The sum
    is computed in the dtype of the values.
    """
    totals: dict[int, Array] = {}
    for index, row in zip(gradient.indices.tolist(), gradient.values, strict=True):
        totals[index] = totals[index] + row if index in totals else row
    indices = np.array(sorted(totals), dtype=np.int64)
    values = np.empty((len(totals), *gradient.values.shape[1:]), gradient.values.dtype)
    for position, index in enumerate(indices.tolist()):
        values[position] = totals[index]
    return Rows(indices, values, gradient.dense_shape)


def densify(gradient: Rows, shape: tuple[int, ...]) -> Array:
    """Return the dense [d0, ...] gradient: summed rows, zero elsewhere."""
    summed = sum_duplicates(gradient)
    dense = np.zeros(shape, gradient.values.dtype)
    dense[summed.indices] = summed.values
    return dense
