"""What a step needs that never waits for the device."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer

from lockstep.pytorch.automatic_scaler import AutomaticLossScaler
from lockstep.spec import mixed_precision as words

__all__ = ["check_capturable", "folds", "make_momentum_buffers", "read"]


def check_capturable(optimizer: Optimizer, scale: Any) -> None:
    """Raise unless a step can do without a look at its gradients."""
    if not folds(optimizer):
        raise words.needs_fused(type(optimizer).__name__)
    if any(group.get("dampening") for group in optimizer.param_groups):
        raise words.needs_fused(f"{type(optimizer).__name__} with dampening")
    if isinstance(scale, AutomaticLossScaler):
        raise words.automatic_on_device()


def make_momentum_buffers(optimizer: Optimizer) -> None:
    """Begin SGD's momentum with zeros.

    A fused step that skips the very first time would leave its new buffers as they came
    from memory.
    """
    for group in optimizer.param_groups:
        if group.get("momentum") and isinstance(optimizer, torch.optim.SGD):
            for parameter in group["params"]:
                buffer = torch.zeros_like(parameter, requires_grad=False)
                optimizer.state[parameter].setdefault("momentum_buffer", buffer)


def read(seen: tuple[Any, ...]) -> list[Any]:
    """Return what a step on the device left, as numbers and parameters."""
    (present, flags), (before, after), finite, norm = seen
    found = [p for p, fine in zip(present, flags.tolist(), strict=True) if not fine]
    shown = None if norm is None else norm.item()
    return [found, (before.item(), after.item()), bool(finite.item()), shown]


def folds(optimizer: Optimizer) -> bool:
    """Say whether a step multiplies the gradients itself, while it reads them."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))
