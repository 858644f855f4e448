"""Arithmetic for one number that may be a Python float or a 0-d float64 tensor.

A sum, product or quotient of float32 numbers is computed in float64 and then rounded.
The result is that of float32. Tensors stay on their device, and their values are never
read.
"""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

__all__ = ["choose", "cosine", "floor", "larger", "power_of", "rounded", "smaller"]

Number = float | Tensor

CODES = {torch.float16: "e", torch.float32: "f", torch.float64: "d"}
PACKED = {dtype: struct.Struct(f"<{code}") for dtype, code in CODES.items()}
SINGLE = PACKED[torch.float32]


def rounded(number: Number, dtype: torch.dtype = torch.float32) -> Number:
    """Round to ``dtype``. Numbers that are too large become infinite."""
    if isinstance(number, Tensor):
        return number.to(dtype).to(torch.float64)
    if dtype == torch.bfloat16:
        exact = torch.tensor(number, dtype=torch.float64, device="cpu")
        return exact.to(dtype).item()
    packed = SINGLE if dtype is torch.float32 else PACKED[dtype]
    try:
        return packed.unpack(packed.pack(float(number)))[0]
    except OverflowError:
        return math.copysign(math.inf, number)


def choose(condition: bool | Tensor, yes: Number, no: Number) -> Number:
    """Return ``yes`` where the condition holds, else ``no``."""
    if not isinstance(condition, Tensor):
        return yes if condition else no
    return torch.where(condition, like(yes, condition), like(no, condition))


def like(number: Number, tensor: Tensor) -> Tensor:
    """Return a number as a float64 tensor on the device of ``tensor``."""
    if isinstance(number, Tensor):
        return number
    return torch.full_like(tensor, number, dtype=torch.float64)


def smaller(one: Number, other: Number) -> Number:
    """Return the minimum."""
    if isinstance(one, Tensor):
        return torch.minimum(one, like(other, one))
    return smaller(other, one) if isinstance(other, Tensor) else min(one, other)


def larger(one: Number, other: Number) -> Number:
    """Return the maximum."""
    if isinstance(one, Tensor):
        return torch.maximum(one, like(other, one))
    return larger(other, one) if isinstance(other, Tensor) else max(one, other)


def power_of(base: Number, exponent: Number) -> Number:
    """Return base^exponent."""
    if isinstance(base, Tensor) or isinstance(exponent, Tensor):
        return torch.pow(base, exponent)
    try:
        return base**exponent
    except (OverflowError, ZeroDivisionError):
        return math.inf


def cosine(angle: Number) -> Number:
    """Return the cosine."""
    return torch.cos(angle) if isinstance(angle, Tensor) else math.cos(angle)


def floor(number: Number) -> Number:
    """Round down."""
    return torch.floor(number) if isinstance(number, Tensor) else math.floor(number)
