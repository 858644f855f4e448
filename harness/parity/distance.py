"""Distances in ULPs between what a backend gives and what was recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.parity.cases import Case, State
from harness.parity.row import Divergence
from lockstep.interface import Array

COPY = re.compile("/(local|global|worker [0-9]+ at last)/")
"""The copy of a variable in a quantity of AGN. Rounding errors move between copies."""


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


class Comparison(NamedTuple):
    """One quantity after one step: both values and their distance.

    ``carried`` is the distance in spacings of the largest recorded value of the
    quantity so far, or of one of its operands. Their rounding errors have this size.
    """

    step: int
    quantity: str
    got: Array | None
    expected: Array
    distance: Distance
    carried: float = np.inf


def compare(
    case: Case,
    states: Sequence[State],
    expectations: Sequence[State],
    smallest: float = 0.0,
) -> Iterator[Comparison]:
    """Yield a comparison for every expected quantity, step by step.

    Values that differ by at most ``smallest`` are equal.
    """
    weights = {} if "variables" not in case.inputs else _initial(case)
    largest = {quantity: magnitude(value) for quantity, value in weights.items()}
    for step, expected in enumerate(expectations):
        got = states[step] if step < len(states) else {}
        for quantity, size in operands(case, weights, expected).items():
            largest[quantity] = max(size, largest.get(quantity, 0.0))
        weights = largest_weights(weights, expected)
        for quantity, value in expected.items():
            result = got.get(quantity)
            measured = distance(result, value, smallest)
            now, base = magnitude(value), COPY.sub("/", quantity)
            largest[base] = max(now, largest.get(base, 0.0))
            grown = spacing(value.dtype, now) / spacing(value.dtype, largest[base])
            carried = measured.ulp * grown
            yield Comparison(step, quantity, result, value, measured, carried)


def _initial(case: Case) -> State:
    """Return the initial variables; none for cases of a custom getter."""
    values = [v for v in case.inputs["variables"] if isinstance(v, Mapping)]
    variables = case.variables if values else []
    return {f"variables/{v.name}": v.value for v in variables}


def largest_weights(before: State, state: State) -> State:
    """Return the largest magnitude that each element of a variable has had so far."""
    with np.errstate(invalid="ignore"):
        return {
            name: np.fmax(np.abs(before.get(name, value)), np.abs(value))
            for name, value in state.items()
            if name.startswith("variables/")
        }


def operands(case: Case, weights: State, after: State) -> dict[str, float]:
    """Return the largest operand of each quantity of a recorded step.

    Only Ftrl has any. It adds (n^-p - accum^-p) / rate w to its slot ``linear``. The
    two powers are nearly equal, and each, divided by the rate, is far larger than the
    difference. ``weights`` are the largest magnitudes so far, because a weight keeps
    the rounding errors.
    """
    optimizer = case.inputs.get("optimizer")
    if case.optimizer != "Ftrl" or not isinstance(optimizer, Mapping):
        return {}
    power = -optimizer["args"].get("learning_rate_power", -0.5)
    rate = optimizer["args"]["learning_rate"]
    largest = {}
    for name, weight in weights.items():
        accum = after.get(name.replace("variables/", "slots/accum/", 1))
        if accum is not None:
            with np.errstate(all="ignore"):
                taken = accum.astype(np.float64) ** power / rate * weight
                size = magnitude(taken.astype(accum.dtype))
            largest[name.replace("variables/", "slots/linear/", 1)] = size
    return largest


def divergence(comparison: Comparison) -> Divergence:
    """Return the position with the largest distance."""
    index = comparison.distance.where
    return Divergence(
        comparison.step,
        comparison.quantity,
        list(index),
        element(comparison.got, index),
        element(comparison.expected, index),
    )


def element(values: Array | None, index: tuple[int, ...]) -> str:
    """Format one element with its exact bits."""
    if values is None:
        return "nothing"
    values = np.asarray(values)
    if values.ndim != len(index) or not values.size:
        return f"an array of shape {list(values.shape)}"
    value = values[index]
    if isinstance(value, np.floating):
        return f"{value!s} ({float(value).hex()}, {value.dtype})"
    return str(value)


def distance(got: Array | None, expected: Array, floor: float = 0.0) -> Distance:
    """Return the distance of ``got`` from ``expected``, in the dtype of ``expected``.

    Values that differ by at most ``floor`` are equal.

    NaN equals NaN, infinities must be equal, and the sign of zero is ignored. The
    distance is infinite if only one value is finite, if integers or flags differ, if
    shapes or dtypes differ, or if there is nothing.
    """
    if got is None or got.shape != expected.shape or got.dtype != expected.dtype:
        return Distance(np.inf, np.inf, (0,) * expected.ndim)
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
