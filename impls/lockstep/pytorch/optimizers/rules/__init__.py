"""The reference's update rules, on tensors that are changed in place.

Formulas are in :mod:`lockstep.reference.optimizers.rules`, with the same names. An
``update_dense`` takes many tensors of one device and dtype, so that few calls do it.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from lockstep.pytorch.tensors.rounding import rounded

__all__ = ["Shared", "Slots", "filled_like"]

Slots: TypeAlias = dict[str, Tensor]
"""TF slot name -> tensor of the variable's shape and dtype."""

Shared: TypeAlias = dict[str, float]
"""Name -> float32 number that all variables share, such as ``beta1_power``."""


def filled_like(
    parameter: Tensor, value: float, scalar: bool, dtype: torch.dtype
) -> Tensor:
    """Return a slot of the shape of a parameter, or a number beside it."""
    if scalar:
        return torch.full((), value, dtype=dtype, device=parameter.device)
    return torch.full_like(
        parameter,
        rounded(value, dtype),
        dtype=dtype,
        memory_format=torch.preserve_format,
        requires_grad=False,
    )
