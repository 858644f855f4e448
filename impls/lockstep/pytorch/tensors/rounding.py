"""Numbers and square roots that are rounded once to the precision of a tensor."""

from __future__ import annotations

import math
from ctypes import c_float
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["plain", "quotient", "reciprocal", "rounded", "rsqrt", "sqrt"]

ONE_THREAD, MANY_THREADS = 1 << 15, 8
"""Up to ``ONE_THREAD`` elements torch uses one thread. In float64, it needs
``MANY_THREADS`` threads to be as fast as NumPy."""


def plain(value: Any) -> Any:
    """Return a NumPy number as a Python number, and anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def rounded(number: float, dtype: torch.dtype) -> float:
    """Round a number to ``dtype``, once.

    torch would round it to float32 and then to float16. With two roundings one number
    in ten thousand is 1 ULP off. For float32 a C number is used, because it is ten
    times as fast as a tensor.
    """
    if dtype == torch.float32:
        return c_float(number).value
    if dtype == torch.float64:
        return float(number)
    if dtype == torch.float16:
        return float(np.float16(number))
    return torch.tensor(number, dtype=dtype, device="cpu").item()


def reciprocal(number: float) -> float:
    """Return 1 / x of a float32 number, rounded to float32."""
    return rounded(quotient(1.0, number), torch.float32)


def quotient(dividend: float, divisor: float) -> float:
    """Return a / b as tensors divide: by 0 it is infinite, and 0 / 0 is NaN."""
    if not divisor:
        return dividend * math.copysign(math.inf, divisor)
    return dividend / divisor


def sqrt(values: Tensor) -> Tensor:
    """Return sqrt(x), correctly rounded to the dtype of ``values``.

    On the CPU torch 2.13 is 1 ULP off for a fifth of all float32 values. NumPy rounds
    correctly but uses one thread. If torch has many threads, the root of a large tensor
    is computed in float64 and rounded once, which is exact. On one thread that takes
    seven times as long.
    """
    if not values.is_cpu:
        return values.sqrt()
    many = values.numel() > ONE_THREAD and torch.get_num_threads() >= MANY_THREADS
    if (many and values.itemsize < 8) or values.dtype == torch.bfloat16:
        return values.double().sqrt().to(values.dtype)
    roots = torch.empty_like(values)
    with np.errstate(invalid="ignore"):
        np.sqrt(values.detach().numpy(), out=roots.numpy())
    return roots


def rsqrt(values: Tensor) -> Tensor:
    """Return 1 / sqrt(x), rounded after each of the two operations."""
    if values.is_cpu and values.itemsize >= 4:
        return values.rsqrt()
    return sqrt(values).reciprocal_()
