"""Numbers that are on another device than what needs them."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["moved"]


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on ``device``; nothing waits on the way to a GPU.

    On the way back one has to: the CPU would read before the GPU has written.
    """
    if tensor.device == device:
        return tensor
    return tensor.to(device, non_blocking=device.type != "cpu")
