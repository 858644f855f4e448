"""Arguments of AGN's getter: devices, tensors, and parameters without names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from lockstep.messages.workers import refusals

__all__ = ["as_device", "is_tensor", "unused_place"]


def is_tensor(found: Any) -> bool:
    """Return whether an object is a tensor."""
    return isinstance(found, Tensor)


def unused_place(place: int, taken: Collection[str]) -> str:
    """Return a name for an unnamed parameter: its place, or the next free number."""
    while str(place) in taken:
        place += 1
    return str(place)


def as_device(device: Any) -> torch.device:
    """Return the device; raise a GetterError if torch does not know it."""
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise refusals.NOT_A_DEVICE.error(got=device) from error
