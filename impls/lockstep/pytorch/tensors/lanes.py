"""Sums in the order of TensorFlow's kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

LANES, LEAF = 8, 1 << 13


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
