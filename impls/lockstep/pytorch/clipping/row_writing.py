"""Clip a table, or some of its rows, in place."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lockstep.messages.clipping.variable_clipping import Axes
from lockstep.pytorch.clipping.clip_rows import (
    compare,
    excess,
    flushed,
    shorten,
)
from lockstep.quirks import Quirks

__all__ = ["NamedRows", "clip_in_place", "counted", "subtract_excess"]


class NamedRows(NamedTuple):
    """Rows ``indices`` [k] of a table, or all rows (None), and how to clip them.

    A row that occurs several times in ``indices`` is computed several times, but with
    the same value.
    """

    table: Tensor
    indices: Tensor | None
    axes: Axes


def clip_in_place(entry: NamedRows) -> Tensor:
    """Clip rows, and return a flag for each norm that was too large.

    On the CPU, only rows above the limit are computed and written. To select them on a
    GPU would need a host sync, so there all rows are computed and written.
    """
    table, indices, axes = entry
    rows = table if indices is None else table.index_select(0, indices)
    norms, too_large = compare(rows, axes, axes.max_norm)
    if rows.is_cpu:
        count = int(too_large.count_nonzero())
        if not count:
            return too_large
        # The order of a sum, so its last bit, may depend on the strides of a table.
        separate = rows.dim() and 0 not in axes and rows.is_contiguous()
        if separate and 2 * count <= len(rows):
            long = too_large.nonzero()[:, 0]
            rows, norms = rows.index_select(0, long), norms.index_select(0, long)
            indices = long if indices is None else indices.index_select(0, long)
    clipped = shorten(rows, norms, axes, axes.max_norm)
    if indices is None:
        table.copy_(clipped)
    else:
        table.index_copy_(0, indices, clipped)
    return too_large


def subtract_excess(entry: NamedRows, quirks: Quirks) -> Tensor:
    """Clip as the original does: subtract the excess of each row.

    With ``row_clip_duplicates``, a row that occurs k times is corrected k times.
    """
    table, indices, axes = entry
    rows = table if indices is None else table.index_select(0, indices)
    _, too_large = compare(rows, axes, axes.max_norm)
    difference = excess(rows, axes, axes.max_norm, quirks)
    flush = quirks.row_clip_subnormals
    if indices is None:
        left = flushed(table, flush) - difference
        table.copy_(flushed(left, flush))
        return too_large
    named = list(zip(indices.tolist(), difference, strict=True))
    for index, row in named if quirks.row_clip_duplicates else dict(named).items():
        left = flushed(table[index], flush) - row
        table[index] = flushed(left, flush)
    return too_large


def counted(indices: Tensor | None, too_large: Tensor) -> tuple[int, int]:
    """Return how many norms were computed and how many were too large, rows once."""
    if indices is None:
        return too_large.numel(), int(too_large.sum())
    rows, place = indices.unique(return_inverse=True)
    once = too_large.new_zeros(len(rows), *too_large.shape[1:])
    once[place] = too_large
    return once.numel(), int(once.sum())
