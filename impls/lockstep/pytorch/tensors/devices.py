"""Move numbers to the device that needs them."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["moved"]


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on ``device``. A copy to a GPU does not wait.

    A copy to the CPU has to wait, because the CPU would otherwise read before the GPU
    has written.
    """
    if tensor.device == device:
        return tensor
    return tensor.to(device, non_blocking=device.type != "cpu")
