"""A stack of wrappers: which optimizer is inside of all."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

__all__ = ["base_of"]


def base_of(optimizer: Optimizer) -> Any:
    """Return the innermost optimizer: the one that owns the state."""
    while "inner_optimizer" in vars(optimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer
