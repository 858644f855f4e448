"""Micro-batches: the sum of their shares of a gradient, rows kept as rows."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["add_share"]


@torch.no_grad()
def add_share(
    total: Tensor | None, gradient: Tensor | None, iter_size: int
) -> Tensor | None:
    """Return total + gradient / iter_size, rounded to the gradient's dtype twice.

    Either may be absent, which adds nothing. Rows + rows are all the rows, in the order
    in which they came; rows + dense are dense. The result shares no memory with either.
    """
    if gradient is None:
        return None if total is None else total.clone()
    if total is None:
        return divided(gradient, iter_size)
    share = divided(gradient, iter_size)
    if total.is_sparse and share.is_sparse:
        return all_rows(total, share)
    if total.is_sparse:
        return share.add_(total.to_dense())
    return (share.to_dense() if share.is_sparse else share).add_(total)


def divided(gradient: Tensor, iter_size: int) -> Tensor:
    """Return gradient / iter_size, of rows their values."""
    if not gradient.is_sparse:
        return gradient / iter_size
    return with_rows(gradient, gradient._indices(), gradient._values() / iter_size)


def all_rows(total: Tensor, share: Tensor) -> Tensor:
    """Return the rows of both, those of ``total`` first; none are summed."""
    indices = torch.cat([total._indices(), share._indices()], dim=1)
    values = torch.cat([total._values(), share._values()])
    return with_rows(total, indices, values)


def with_rows(like: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    """Return a sparse gradient shaped like another one."""
    return torch.sparse_coo_tensor(indices, values, like.shape, check_invariants=False)
