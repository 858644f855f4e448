"""Clipping by the global norm over the gradients that are present."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.rounding import rounded, sqrt
from lockstep.pytorch.tensors.zero_test import flush_subnormals

__all__ = ["clip_factor", "global_norm", "lane_sum", "scale_gradients", "with_values"]

LANES, LEAF = 8, 1 << 13


def global_norm(
    gradients: Sequence[Tensor], dtype: torch.dtype, flush: bool = False
) -> Tensor:
    """Return the global norm in ``dtype``, in the order of ``tf.linalg.global_norm``.

    ``flush``: as in :func:`lockstep.reference.clipping.clip_gradients.global_norm`.
    """
    device = gradients[0].device if gradients else None
    total = torch.zeros((), dtype=dtype, device=device)
    # The squares are halved one by one, as ``tf.nn.l2_loss`` does.
    halves: Iterable[Tensor] = (g.to(dtype).square() * 0.5 for g in gradients)
    for half in lane_sum(map(flush_subnormals, halves) if flush else halves):
        total = total + half.to(device)
    return sqrt(total * 2)


def lane_sum(values: Iterable[Tensor]) -> list[Tensor]:
    """Return the sum of all elements of each tensor, in its dtype: 0-d each.

    Up to 8192 elements, the additions have the order of the original's kernel; see
    :func:`folded`. That kernel splits larger tensors among threads, in an order that
    depends on the machine. Here larger tensors are summed in float64, and the sum is
    rounded once.
    """
    sums: dict[int, Tensor] = {}
    short: dict[Any, dict[int, Tensor]] = defaultdict(dict)
    for k, tensor in enumerate(values):
        flat = tensor.reshape(-1)
        if flat.numel() > LEAF:
            sums[k] = flat.sum(dtype=torch.float64).to(flat.dtype)
        else:
            short[flat.numel(), flat.dtype, flat.device][k] = flat
    for flats in short.values():
        squares = folded(torch.stack(list(flats.values())))
        sums.update(zip(flats, squares.unbind(), strict=True))
    return [sums[k] for k in range(len(sums))]


def folded(rows: Tensor) -> Tensor:
    """Return the sum of each row [n, size], in eight lanes that are added in halves.

    Lanes in half precision are added in float32, and the sum is rounded once. The
    elements that do not fill eight lanes are added last.
    """
    count, size = rows.shape
    whole = size // LANES * LANES
    parts = rows[:, :whole].unflatten(1, (whole // LANES, LANES)).unbind(1)
    lanes = reduce(Tensor.add_, parts, rows.new_zeros(count, LANES))
    lanes = lanes.to(torch.promote_types(rows.dtype, torch.float32))
    while lanes.shape[1] > 1:
        lanes = torch.add(*lanes.chunk(2, 1))
    rest = reduce(torch.add, rows[:, whole:].unbind(1), rows.new_zeros(count))
    return lanes[:, 0].to(rows.dtype) + rest


def clip_factor(norm: Tensor, clip_norm: float, flush: bool = False) -> Tensor:
    """Return clip_norm min(1 / norm, 1 / clip_norm), NaN for a non-finite norm.

    ``flush``: as in :func:`lockstep.reference.clipping.clip_gradients.clip_factor`.
    """
    limit = torch.full_like(norm, rounded(clip_norm, norm.dtype))
    if flush:
        limit = flush_subnormals(limit)
        smaller = flush_subnormals(torch.minimum(1 / norm, 1 / limit))
        factor = flush_subnormals(limit * smaller)
    else:
        factor = limit * torch.minimum(1 / norm, 1 / limit)
    return torch.where(norm.isfinite(), factor, torch.nan)


def scale_gradients(
    gradients: Sequence[Tensor | None], factor: Tensor
) -> list[Tensor | None]:
    """Return the gradients times ``factor``, each in its own dtype; None stays None."""
    present = [gradient for gradient in gradients if gradient is not None]
    parts = shards.parts_of(present)
    values = [g._values() if g.is_sparse else g for g in parts]
    scaled = map(with_values, parts, foreach.scale(values, factor))
    results = iter(shards.laid_out(present, list(scaled)))
    return [None if gradient is None else next(results) for gradient in gradients]


def with_values(gradient: Tensor, values: Tensor) -> Tensor:
    """Return ``values``, as the rows of a sparse tensor if ``gradient`` is one."""
    if not gradient.is_sparse:
        return values
    return torch.sparse_coo_tensor(
        gradient._indices(),
        values,
        gradient.shape,
        is_coalesced=gradient.is_coalesced(),
        check_invariants=False,
    )
