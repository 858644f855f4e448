"""Python numbers in the precision of a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

__all__ = ["plain", "rounded"]


def plain(value: Any) -> Any:
    """Return Python's number for one of NumPy, and anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def rounded(number: float, dtype: torch.dtype) -> float:
    """Round a number to ``dtype``, once.

    torch makes a float32 of it on the way to float16, and so rounds twice: one number
    in ten thousand comes out 1 ULP off.
    """
    if dtype == torch.float16:
        return float(np.float16(number))
    return torch.tensor(number, dtype=dtype).item()
