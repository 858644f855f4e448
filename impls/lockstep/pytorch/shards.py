"""DTensors: tensors that are split over ranks, or that all ranks have.

FSDP2 (``fully_shard``) and tensor parallelism create them. Elementwise arithmetic uses
the part of this rank. A norm or a flag of a whole tensor is combined from those of its
parts in one collective. So all ranks with a part must call the function.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

MODULE = "torch.distributed.tensor"


def are_among(tensors: Iterable[Any]) -> bool:
    """Whether any of these is a DTensor."""
    # DTensors need their module of torch, whose import is slow, and several ranks. A
    # program without these does not check its tensors.
    module = sys.modules.get(MODULE)
    if module is None or not dist.is_initialized():
        return False
    # Checking each type once is fast, because there are few types.
    return any([issubclass(kind, module.DTensor) for kind in set(map(type, tensors))])


def part_of(tensor: Tensor) -> Tensor:
    """Return this rank's part, which shares memory; a plain tensor is unchanged."""
    return tensor.to_local().detach() if are_among([tensor]) else tensor


def parts_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return this rank's part of each tensor, see :func:`part_of`."""
    tensors = list(tensors)
    return [part_of(t) for t in tensors] if are_among(tensors) else tensors


def added_up(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return the sums of DTensors of which ranks have terms, for norms and checks."""
    results = []
    for tensor in tensors:
        if are_among([tensor]) and any(p.is_partial() for p in tensor.placements):
            whole = sys.modules[MODULE].Replicate()
            kept = [whole if p.is_partial() else p for p in tensor.placements]
            tensor = tensor.redistribute(placements=kept)
        results.append(tensor)
    return results


def split_alike(
    gradients: Sequence[Any], parameters: Sequence[Any]
) -> Sequence[Tensor | None]:
    """Return the gradients, split over ranks like their parameters. None stays None."""
    if not are_among(parameters):
        return gradients
    return [
        g.redistribute(placements=p.placements)
        if g is not None and are_among([p]) and g.placements != p.placements
        else g
        for g, p in zip(gradients, parameters, strict=True)
    ]


def laid_out(tensors: Sequence[Tensor], parts: Sequence[Tensor]) -> list[Tensor]:
    """Return the parts as DTensors if the tensors that they belong to are DTensors."""
    if not are_among(tensors):
        return list(parts)
    return [
        sys.modules[MODULE].DTensor.from_local(
            part,
            tensor.device_mesh,
            tensor.placements,
            run_check=False,
            shape=tensor.shape,
            stride=tensor.stride(),
        )
        if are_among([tensor])
        else part
        for tensor, part in zip(tensors, parts, strict=True)
    ]


def all_ranks(flags: Sequence[bool], tensors: Sequence[Tensor]) -> list[bool]:
    """Return, for each tensor, whether all ranks that have a part set its flag."""
    # Ranks exchange numbers on the device of a DTensor.
    device = next(tensor.device for tensor in tensors if are_among([tensor]))
    numbers = torch.tensor(flags, dtype=torch.int32, device=device)
    return [bool(k) for k in over_ranks(numbers, tensors, dist.ReduceOp.MIN).tolist()]


def sums(numbers: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Return, for each tensor, the sum of the numbers of its parts: [n]."""
    return over_ranks(numbers, tensors, dist.ReduceOp.SUM)


def largest(numbers: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Return, for each tensor, the largest number of its parts, inf for NaN: [n]."""
    known = torch.where(numbers.isnan(), torch.inf, numbers)
    return over_ranks(known, tensors, dist.ReduceOp.MAX)


def over_ranks(
    numbers: Tensor, tensors: Sequence[Tensor], operation: dist.ReduceOp
) -> Tensor:
    """Reduce one number per tensor over the ranks that have a part of it: [n]."""
    layouts: dict[Any, list[int]] = defaultdict(list)
    for position, tensor in enumerate(tensors):
        if are_among([tensor]):
            axes = [k for k, p in enumerate(tensor.placements) if not p.is_replicate()]
            layouts[tensor.device_mesh, tuple(axes)].append(position)
    reduced = numbers.clone()
    for (mesh, axes), positions in layouts.items():
        some = reduced[positions]
        for axis in axes:
            dist.all_reduce(some, operation, group=mesh.get_group(axis))
        reduced[positions] = some
    return reduced
