"""Distances in ULPs between a backend's results and the recorded values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lockstep.interface import Array

__all__ = ["Distance", "distance", "magnitude", "spacing"]


class Distance(NamedTuple):
    """The distance of a quantity from its recorded value.

    Attributes:
        ulp: |got - expected| / spacing(max |expected|), the largest over the elements.
        raw: number of representable values between the two, the largest over elements.
        where: the multi-index at which ``ulp`` is largest.
    """

    ulp: float
    raw: float
    where: tuple[int, ...]


def distance(got: Array, expected: Array, floor: float = 0.0) -> Distance:
    """Return the distance of ``got`` from ``expected``, in the dtype of ``expected``.

    Values that differ by at most ``floor`` are equal.

    NaN equals NaN, infinities must be equal, and the sign of zero is ignored. The
    distance is infinite if only one value is finite, if integers or flags differ, or if
    shapes or dtypes differ.
    """
    start = (0,) * expected.ndim
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return Distance(np.inf, np.inf, start)
    if not np.issubdtype(expected.dtype, np.floating):
        return _worst(np.where(got == expected, 0.0, np.inf), None)
    wide_got, wide = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(wide)
    same = (wide_got == wide) | (np.isnan(wide_got) & np.isnan(wide))
    comparable = finite & np.isfinite(wide_got)
    with np.errstate(invalid="ignore"):
        apart = np.abs(wide_got - wide)
        same |= apart <= floor
        gap = apart / spacing(expected.dtype, magnitude(expected))
    ulp = np.where(same, 0.0, np.where(comparable, gap, np.inf))
    steps = np.abs(_ordinal(got) - _ordinal(expected))
    raw = np.where(same, 0.0, np.where(comparable, steps, np.inf))
    return _worst(ulp, raw)


def magnitude(values: Array) -> float:
    """Return the largest magnitude of the finite values; 0 for other dtypes."""
    if not np.issubdtype(values.dtype, np.floating):
        return 0.0
    finite = values[np.isfinite(values)]
    return float(np.max(np.abs(finite), initial=values.dtype.type(0)))


def spacing(dtype: np.dtype[Any], size: float) -> float:
    """Return the distance from ``size`` to the next larger value of ``dtype``.

    For the largest value, return the distance to the next smaller one.
    """
    if not np.issubdtype(dtype, np.floating):
        return 1.0
    with np.errstate(over="ignore"):
        apart = float(np.spacing(dtype.type(size)))
    return apart if np.isfinite(apart) else 2 * float(np.spacing(dtype.type(size / 2)))


def _ordinal(values: Array) -> Array:
    """Number the representable values of a dtype in ascending order, as float64."""
    bits = values.dtype.itemsize * 8
    integers: Any = values.view(f"int{bits}").astype(np.int64)
    lowest = -(2 ** (bits - 1))
    ordinals: Array = np.where(integers < 0, lowest - integers, integers)
    return ordinals.astype(np.float64)


def _worst(ulp: Array, raw: Array | None) -> Distance:
    if ulp.size == 0:
        return Distance(0.0, 0.0, ())
    position = np.unravel_index(int(np.argmax(ulp)), ulp.shape)
    raw = ulp if raw is None else raw
    where = tuple(int(i) for i in position)
    return Distance(float(ulp[position]), float(np.max(raw)), where)
