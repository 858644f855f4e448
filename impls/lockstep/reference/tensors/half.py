"""Casts and products of half-precision and float32 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.masters.mixed_precision import LARGEST
from lockstep.reference.tensors.zero_test import flush_subnormals

__all__ = [
    "follow",
    "narrowed",
    "saturating_cast",
    "scale_in_dtype",
    "times",
    "widen",
]


def saturating_cast(values: Array, dtype: np.dtype[Any]) -> Array:
    """Round float32 to ``dtype``, clamped to its largest magnitude; NaN stays NaN."""
    largest = np.float32(LARGEST[str(dtype)])
    return np.clip(values, -largest, largest).astype(dtype)


def follow(master: Array, model: Array) -> Array:
    """Return the float32 master, updated where ``model`` was written from outside.

    Where ``master`` rounds to ``model``, or both are NaN, the master is kept, because
    it is more precise. Elsewhere the result is float32(model).
    """
    rounded = saturating_cast(master, model.dtype)
    same = (rounded == model) | (np.isnan(rounded) & np.isnan(model))
    return np.where(same, master, model.astype(np.float32))


def scale_in_dtype(gradient: Gradient, factor: np.float32) -> Gradient:
    """Return a gradient times a factor, rounded to the gradient's dtype first.

    This is the gradient that a scaled loss has in a float16 model, where a factor above
    65504 is infinite.
    """
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=product(gradient.values, factor))
    return product(gradient, factor)


def product(values: Array, factor: np.float32) -> Array:
    """Return values times a factor, which is rounded to their dtype first."""
    with np.errstate(all="ignore"):
        return np.asarray(values * values.dtype.type(factor))


def widen(gradient: Gradient) -> Gradient:
    """Return a gradient in float32; None stays None."""
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=gradient.values.astype(np.float32))
    return gradient.astype(np.float32)


def narrowed(gradient: Gradient, dtype: np.dtype[Any]) -> Gradient:
    """Return a gradient in ``dtype``."""
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=np.asarray(gradient.values, dtype))
    return np.asarray(gradient, dtype)


def times(gradient: Gradient, factor: np.float32, flush: bool = False) -> Gradient:
    """Return a gradient times a float32 factor, rounded once to its own dtype.

    ``flush``: replace subnormal inputs and outputs by zero, as the original's kernels.
    """
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=wide_product(gradient.values, factor, flush))
    return wide_product(gradient, factor, flush)


def wide_product(values: Array, factor: np.float32, flush: bool) -> Array:
    """Return values times a factor: see :func:`times`."""
    with np.errstate(all="ignore"):
        values = flush_subnormals(values) if flush else values
        wide = values.astype(np.promote_types(values.dtype, np.float32))
        result = np.asarray(wide * factor).astype(values.dtype)
    return flush_subnormals(result) if flush else result
