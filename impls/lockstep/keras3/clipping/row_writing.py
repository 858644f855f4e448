"""Reads and assignments of a whole variable, or of the rows of a sparse gradient."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from lockstep.interface import Array
from lockstep.keras3.base.replicas import first_copy, update_each

__all__ = ["each_row_once", "read_rows", "subtract_rows", "write_rows"]


def each_row_once(indices: tf.Tensor | None, too_large: tf.Tensor) -> Array:
    """Return ``too_large`` with one entry per distinct row."""
    flags = np.asarray(too_large)
    if indices is None:
        return flags
    return flags[np.unique(indices, return_index=True)[1]]


def read_rows(variable: tf.Variable, indices: tf.Tensor | None) -> tf.Tensor:
    """Return the rows of ``indices``; None: all rows."""
    if indices is None:
        return variable.read_value()
    # A mirrored variable has no sparse_read of its own outside of a replica.
    return first_copy(variable).sparse_read(indices)


def write_rows(
    variable: tf.Variable, indices: tf.Tensor | None, values: tf.Tensor
) -> None:
    """Assign ``values`` once to each row of ``indices``; None: to all rows."""
    if indices is None:
        variable.assign(values, read_value=False)
        return

    def write(copy: tf.Variable) -> None:
        # The variable's own method would read the whole variable afterwards.
        tf.raw_ops.ResourceScatterUpdate(
            resource=copy.handle, indices=indices, updates=values
        )

    update_each(variable, write)


def subtract_rows(
    variable: tf.Variable, indices: tf.Tensor | None, values: tf.Tensor
) -> None:
    """Subtract ``values`` from rows one by one; None as ``indices``: all rows."""
    if indices is None:
        variable.assign_sub(values, read_value=False)
        return

    def subtract(copy: tf.Variable) -> None:
        tf.raw_ops.ResourceScatterSub(
            resource=copy.handle, indices=indices, updates=values
        )

    update_each(variable, subtract)
