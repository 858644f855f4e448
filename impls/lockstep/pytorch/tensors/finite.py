"""Finite checks of gradients, and gradients times a number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.foreach import with_values
from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.norms import magnitudes, stored_values, total_norm
from lockstep.pytorch.tensors.zero_test import by_device, flush_subnormals

__all__ = ["are_surely_finite", "finite_flags", "times"]

SMALL = 1 << 14
"""Up to this size, checking elements in one launch is faster than a sum of each."""


@torch.no_grad()
def are_surely_finite(gradients: Sequence[Tensor]) -> bool:
    """Whether all gradients are finite by a quick check; if False, they still may be.

    On the CPU small gradients are checked element by element in one launch. Of a large
    one the sum is read: if it is finite, so are all elements. On other devices and for
    DTensors a finite norm proves it, with one host sync.
    """
    if shards.are_among(gradients) or not all([g.is_cpu for g in gradients]):
        return math.isfinite(total_norm(gradients).item())
    values = stored_values(gradients)
    small = [v for v in values if v.numel() <= SMALL and v.is_contiguous()]
    if len(small) < len(values):
        large = [v for v in values if v.numel() > SMALL or not v.is_contiguous()]
        sums = [wide_sum(v) for v in large]
        if not all([math.isfinite(total.item()) for total in sums]):
            return False
    return foreach.are_finite(small)


def wide_sum(values: Tensor) -> Tensor:
    """Return the sum of all elements: 0-d, for half precision in float32."""
    return values.sum(dtype=torch.float32 if values.itemsize < 4 else None)


def finite_flags(gradients: Sequence[Tensor]) -> list[bool]:
    """Return, for each gradient, whether all its elements are finite.

    Duplicate rows are summed first. One host sync per device.
    """
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.all_ranks(finite_flags(shards.parts_of(whole)), whole)
    return by_device(gradients, all_finite)


def all_finite(gradients: Sequence[Tensor]) -> list[bool]:
    """Return, for each gradient, whether it is finite; all are on one device.

    On the CPU the sums are checked first. If a sum is finite, so are all elements. If
    not, the elements are checked, because finite elements may have an infinite sum.
    """
    if not gradients[0].is_cpu:
        return magnitudes(gradients).isfinite().tolist()
    values = stored_values(gradients)
    flags = torch.stack(list(map(wide_sum, values))).isfinite().tolist()
    return [
        flag or bool(v.isfinite().all()) for flag, v in zip(flags, values, strict=True)
    ]


def times(
    gradients: Sequence[Tensor], factor: float | Tensor, flush: bool = False
) -> list[Tensor]:
    """Return gradients times a float32 factor, each rounded once to its own dtype.

    The products of half precision are computed in float32. With ``flush``, subnormals
    become zero before and after the product, as in the original's kernels.
    """
    if shards.are_among(gradients):
        products = times(shards.parts_of(gradients), factor, flush)
        return shards.laid_out(gradients, products)
    values = [g._values() if g.is_sparse else g for g in gradients]
    wide = [v.float() if v.itemsize < 4 else v for v in values]
    if flush:
        wide = [flush_subnormals(v) for v in wide]
    products = foreach.scale(wide, factor)
    if flush:
        products = [flush_subnormals(v) for v in products]
    if any([v.itemsize < 4 for v in values]):
        products = [p.to(v.dtype) for p, v in zip(products, values, strict=True)]
    return [
        with_values(gradient, product) if gradient.is_sparse else product
        for gradient, product in zip(gradients, products, strict=True)
    ]
