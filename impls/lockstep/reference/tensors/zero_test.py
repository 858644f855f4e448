"""The zero test of the multitask wrapper, and flushing of subnormals."""

from __future__ import annotations

import numpy as np

from lockstep.interface import Array, Rows
from lockstep.reference.tensors.rows import sum_duplicates

__all__ = ["flush_subnormals", "is_all_zero"]


def is_all_zero(gradient: Array | Rows, flush: bool = False) -> bool:
    """Return whether ``gradient`` has no nonzero element.

    -0.0 is zero; NaN and infinity are not. The duplicate rows of a sparse gradient are
    summed first. So the result is True for rows that cancel, rows of zeros and no rows.
    With ``flush``, float32 subnormals are zero, as in the original.
    """
    if isinstance(gradient, Rows):
        gradient = sum_duplicates(gradient).values
    if flush:
        gradient = flush_subnormals(gradient)
    return int(np.count_nonzero(gradient)) == 0


def flush_subnormals(values: Array) -> Array:
    """Replace subnormals by zero, except in float16.

    The original's kernels ran in the processor's flush-to-zero mode, which does not
    apply to float16.
    """
    if values.dtype == np.float16:
        return values
    values = np.asarray(values)
    smallest = np.finfo(values.dtype).smallest_normal
    zero = np.zeros((), values.dtype)
    return np.where(np.abs(values) < smallest, zero, values)
