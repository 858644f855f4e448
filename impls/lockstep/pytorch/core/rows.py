"""Rows of a sparse gradient: duplicate indices are summed before any rule sees them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["Rows", "as_rows", "sum_duplicates"]


class Rows(NamedTuple):
    """Row ``values[k]`` belongs to row ``indices[k]``."""

    indices: Tensor
    values: Tensor


def as_rows(gradient: Tensor) -> Rows:
    """Return the [k] indices and [k, ...] values of a sparse gradient, as they come."""
    return Rows(gradient._indices()[0], gradient._values())


def sum_duplicates(gradient: Tensor) -> Rows:
    """Add up the rows that share an index, in the order of their occurrence.

    ``values`` [k, ...] becomes [u, ...] with u distinct, ascending ``indices``. The sum
    is taken in the dtype of the values.
    """
    return as_rows(gradient.coalesce())
