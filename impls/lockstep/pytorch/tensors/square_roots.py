"""Square roots, correctly rounded."""

from __future__ import annotations

from torch import Tensor

__all__ = ["rsqrt", "sqrt"]


def sqrt(values: Tensor) -> Tensor:
    """Return sqrt(x), correctly rounded to the dtype of ``values``.

    On the CPU torch 2.13 is 1 ULP off for a fifth of all float32 values, so the root
    is taken in float64 there; one rounding of that is exact.
    """
    if values.is_cpu:
        return values.double().sqrt().to(values.dtype)
    return values.sqrt()


def rsqrt(values: Tensor) -> Tensor:
    """Return 1 / sqrt(x), both operations rounded to the dtype of ``values``."""
    return sqrt(values).reciprocal_()
