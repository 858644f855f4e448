"""The innermost optimizer of a stack of wrappers."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

__all__ = ["base_of", "comes_with_torch", "splits_groups"]


def base_of(optimizer: Optimizer) -> Any:
    """Return the innermost optimizer: the one that owns the state."""
    while "inner_optimizer" in vars(optimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def comes_with_torch(optimizer: Optimizer) -> bool:
    """Whether the optimizer's class is one of ``torch.optim``."""
    # The module of some classes, such as Adafactor, is the package itself.
    return f"{type(optimizer).__module__}.".startswith("torch.optim.")


def splits_groups(optimizer: Optimizer) -> bool:
    """Whether the innermost optimizer is torch's ``ZeroRedundancyOptimizer``.

    It updates through another optimizer, whose groups hold parameters of this rank.
    Parameters that are replaced in the groups of a stack are not replaced there.
    """
    kinds = type(base_of(optimizer)).__mro__
    return any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in kinds)
