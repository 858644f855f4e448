"""The sum over micro-batches of a gradient that may be absent or sparse."""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.pytorch.tensors import foreach

__all__ = ["add_share"]


@torch.no_grad()
def add_share(
    total: Tensor | None, gradient: Tensor | None, iter_size: int
) -> Tensor | None:
    """Return total + gradient / iter_size as a new tensor.

    The rule is that of :func:`lockstep.reference.step.micro_batches.add_share`.
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
    """Return a micro-batch's share: gradient / iter_size."""
    values = gradient._values() if gradient.is_sparse else gradient
    (share,) = foreach.divide([values], iter_size)
    if not gradient.is_sparse:
        return share
    return with_rows(gradient, gradient._indices(), share)


def all_rows(total: Tensor, share: Tensor) -> Tensor:
    """Return the rows of both, those of ``total`` first; none are summed."""
    indices = torch.cat([total._indices(), share._indices()], dim=1)
    values = foreach.joined([total._values(), share._values()])
    return with_rows(total, indices, values)


def with_rows(like: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    """Return a sparse gradient shaped like another one."""
    return torch.sparse_coo_tensor(indices, values, like.shape, check_invariants=False)
