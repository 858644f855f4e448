"""A global norm that is fast, and accurate for very large tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.core import foreach
from lockstep.pytorch.core.rows import sum_duplicates

__all__ = ["accurate_norm"]

BLOCK = 1 << 12


def accurate_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the global norm sqrt(sum of squares): 0-d float32, right to 1e-6.

    Squares are taken in float32 whatever the dtype. Up to 4096 elements are added in
    float64; larger tensors are cut into rows of 4096, a row's norm is taken in float32
    and the rows are added in float64. (One float32 sum over 100M elements is 1 % off.)
    """
    values = [sum_duplicates(g).values if g.is_sparse else g for g in gradients]
    values = [torch.view_as_real(v) if v.is_complex() else v for v in values]
    sums = foreach.square_sums([v for v in values if v.numel() <= BLOCK], torch.float32)
    sums += [square_sum_by_rows(v) for v in values if v.numel() > BLOCK]
    device = sums[0].device if sums else None
    total = torch.zeros((), dtype=torch.float64, device=device)
    if sums:
        total = torch.stack([s.to(device) for s in sums]).sum()
    return total.sqrt().float()


def square_sum_by_rows(tensor: Tensor) -> Tensor:
    """Return the sum of squares by rows of 4096 elements and a shorter rest."""
    flat = tensor.reshape(-1)
    even = flat.numel() // BLOCK * BLOCK
    parts = flat[:even].view(-1, BLOCK), flat[even:].view(1, -1)
    norms = [torch.linalg.vector_norm(part.float(), dim=1) for part in parts]
    return torch.cat(norms).double().square_().sum()
