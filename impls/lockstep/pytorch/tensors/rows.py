"""Rows of a sparse gradient, with each index once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Rows", "as_rows", "sum_duplicates"]


class Rows(NamedTuple):
    """Row ``values[k]`` belongs to row ``indices[k]``."""

    indices: Tensor
    values: Tensor


def as_rows(gradient: Tensor) -> Rows:
    """Return indices [k] and values [k, ...] of a sparse gradient, in stored order."""
    return Rows(gradient._indices()[0], gradient._values())


def sum_duplicates(gradient: Tensor) -> Rows:
    """Return distinct, ascending ``indices`` and the sums of their ``values``."""
    if gradient.is_coalesced():
        return as_rows(gradient)
    # coalesce() is not used, because from 17 rows on its sort is not stable.
    indices, values = as_rows(gradient)
    ascending, order = torch.sort(indices, stable=True)
    distinct, counts = torch.unique_consecutive(ascending, return_counts=True)
    ordered = values.index_select(0, order)
    # segment_reduce() takes no complex numbers.
    if values.is_complex():
        ordered = torch.view_as_real(ordered.resolve_conj())
    sums = torch.segment_reduce(ordered, "sum", lengths=counts, axis=0, unsafe=True)
    return Rows(distinct, torch.view_as_complex(sums) if values.is_complex() else sums)
