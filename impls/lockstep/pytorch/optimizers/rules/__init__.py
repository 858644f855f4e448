"""The reference's update rules, on tensors that are changed in place.

Formulas are in :mod:`lockstep.reference.optimizers.rules`, with the same names. Each
``update_dense`` updates many tensors of one device and dtype with few calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from lockstep.pytorch.tensors.rounding import rounded

__all__ = ["Shared", "Slots", "filled_like", "in_pieces"]

Slots: TypeAlias = dict[str, Tensor]
"""TF slot name -> tensor of the variable's shape and dtype."""

Shared: TypeAlias = dict[str, float]
"""Name -> float32 number that all variables share, such as ``beta1_power``."""


def filled_like(
    parameter: Tensor, value: float, scalar: bool, dtype: torch.dtype
) -> Tensor:
    """Return a new slot with a parameter's shape, or a 0-d one on its device."""
    if scalar:
        return torch.full((), value, dtype=dtype, device=parameter.device)
    return torch.full_like(
        parameter,
        rounded(value, dtype),
        dtype=dtype,
        memory_format=torch.preserve_format,
        requires_grad=False,
    )


def in_pieces(
    variables: Sequence[Tensor],
    slots: Sequence[Slots],
    gradients: Sequence[Tensor],
    size: int | None,
) -> list[tuple[Sequence[Tensor], Sequence[Slots], Sequence[Tensor]]]:
    """Split one large tensor on the CPU into views of ``size`` elements per thread.

    The results of one operation are then still in the cache when the next operation
    reads them. Several tensors, small tensors and GPU tensors are not split, nor is
    anything if ``size`` is None.
    """
    whole = [(variables, slots, gradients)]
    if size is None or len(variables) > 1 or not variables[0].is_cpu:
        return whole
    size *= torch.get_num_threads()
    tensors = [variables[0], gradients[0], *slots[0].values()]
    if variables[0].numel() <= size or not all([t.is_contiguous() for t in tensors]):
        return whole
    cut = [tensor.view(-1).split(size) for tensor in tensors]
    return [
        ([variable], [dict(zip(slots[0], own, strict=True))], [gradient])
        for variable, gradient, *own in zip(*cut, strict=True)
    ]
