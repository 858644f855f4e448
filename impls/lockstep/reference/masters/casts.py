"""Casts from float32 masters to half-precision weights, and penalty gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.masters.mixed_precision import LARGEST
from lockstep.reference.tensors.rows import densify

__all__ = ["add_penalty", "saturating_cast"]


def saturating_cast(values: Array, dtype: np.dtype[Any]) -> Array:
    """Round float32 to ``dtype``, clamped to its largest magnitude; NaN stays NaN."""
    largest = np.float32(LARGEST[str(dtype)])
    return np.clip(values, -largest, largest).astype(dtype)


def add_penalty(gradient: Gradient, penalty: Array) -> Array:
    """Add the gradient of a penalty [d0, ...]; rows become dense, None counts as 0."""
    if gradient is None:
        return penalty
    if isinstance(gradient, Rows):
        gradient = densify(gradient, penalty.shape)
    with np.errstate(all="ignore"):
        return np.asarray(gradient + penalty)
