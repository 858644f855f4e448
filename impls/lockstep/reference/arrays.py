"""Variables and gradients in NumPy, and the arithmetic that several tools share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lockstep.errors import (
    DtypeError,
    NoGradientsError,
    ShapeError,
)
from lockstep.interface import Array, Gradient, Rows

SINGLE: np.dtype[Any] = np.dtype(np.float32)
LANES, LEAF = 8, 1 << 13

LARGEST = {"float16": 65504.0, "bfloat16": (2 - 2**-7) * 2.0**127}
"""Half-precision dtype -> its largest number."""

Given = TypeVar("Given", bound=Gradient)


class Variable:
    """A named array whose value can be replaced; its dtype and shape never change.

    Args:
        name: the variable's name, used in reports and errors.
        value: initial value, any shape; float16, float32, float64 or an integer.
        dtype: dtype of the value; None keeps the value's own.
    """

    def __init__(
        self, name: str, value: npt.ArrayLike, dtype: npt.DTypeLike | None = None
    ) -> None:
        self.name = name
        self.value: Array = np.array(value, dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.value.shape

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.value!r})"


Pairs = list[tuple[Gradient, Variable]]


# -- gradients -------------------------------------------------------------------------


def values_of(gradient: Any) -> Array:
    """Return a dense gradient, or the rows of a sparse one as they are listed."""
    return np.asarray(gradient.values if isinstance(gradient, Rows) else gradient)


def map_values(function: Callable[[Array], Any], gradient: Given) -> Given:
    """Return a gradient with ``function`` applied to its values; None stays None."""
    if gradient is None:
        return gradient
    with np.errstate(all="ignore"):
        values = np.asarray(function(values_of(gradient)))
    return gradient._replace(values=values) if isinstance(gradient, Rows) else values  # type: ignore[return-value]


def sum_duplicates(gradient: Rows) -> Rows:
    """Sum the rows that share an index, in the order of their occurrence.

    ``values`` [k, ...] becomes [u, ...] with u distinct, ascending ``indices``. The sum
    is computed in the dtype of the values.
    """
    totals: dict[int, Array] = {}
    for index, row in zip(gradient.indices.tolist(), gradient.values, strict=True):
        totals[index] = totals[index] + row if index in totals else row
    indices = np.array(sorted(totals), dtype=np.int64)
    values = np.empty((len(totals), *gradient.values.shape[1:]), gradient.values.dtype)
    for position, index in enumerate(indices.tolist()):
        values[position] = totals[index]
    return Rows(indices, values, gradient.dense_shape)


def summed_values(gradient: Array | Rows) -> Array:
    """Return a dense gradient, or the rows of a sparse one with duplicates summed."""
    if isinstance(gradient, Rows):
        gradient = sum_duplicates(gradient)
    return values_of(gradient)


def densify(gradient: Array | Rows, shape: tuple[int, ...]) -> Array:
    """Return a gradient as a dense array; of sparse ones the other rows are zero."""
    if not isinstance(gradient, Rows):
        return gradient
    summed = sum_duplicates(gradient)
    dense = np.zeros(shape, gradient.values.dtype)
    dense[summed.indices] = summed.values
    return dense


def cast(gradient: Given, dtype: np.dtype[Any]) -> Given:
    """Return a gradient in ``dtype``."""
    return map_values(lambda values: values.astype(dtype), gradient)


def is_all_zero(gradient: Array | Rows, flush: bool = False) -> bool:
    """Return whether no element is nonzero, duplicate rows summed; -0.0 is zero.

    With ``flush``, subnormals are zero, as in the original.
    """
    values = summed_values(gradient)
    return not np.count_nonzero(flush_subnormals(values) if flush else values)


def is_finite(gradient: Gradient) -> bool:
    """Return whether all elements are finite, duplicate rows summed; None counts."""
    if gradient is None:
        return True
    with np.errstate(all="ignore"):
        return bool(np.all(np.isfinite(summed_values(gradient))))


# -- arithmetic ------------------------------------------------------------------------


def flush_subnormals(values: Array) -> Array:
    """Replace subnormals by zero, as the original's kernels do, except in float16."""
    if values.dtype == np.float16:
        return values
    values = np.asarray(values)
    smallest = np.finfo(values.dtype).smallest_normal
    return np.where(np.abs(values) < smallest, np.zeros((), values.dtype), values)


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return ``dtype``, or float32 for half precision."""
    return np.promote_types(dtype, SINGLE)


def saturating_cast(values: Array, dtype: np.dtype[Any]) -> Array:
    """Round float32 to half precision, clamped to its largest number; NaN stays NaN."""
    largest = np.float32(LARGEST[str(dtype)])
    return np.clip(values, -largest, largest).astype(dtype)


def times(gradient: Given, factor: np.float32, flush: bool = False) -> Given:
    """Return a gradient times a float32 factor, rounded once to its own dtype.

    ``flush``: replace subnormal inputs and outputs by zero, as the original's kernels.
    """

    def product(values: Array) -> Array:
        values = flush_subnormals(values) if flush else values
        wide = values.astype(wide_dtype(values.dtype)) * factor
        result = np.asarray(wide).astype(values.dtype)
        return flush_subnormals(result) if flush else result

    return map_values(product, gradient)


def plain_sum(values: Array) -> Any:
    """Add [n] values one after the other, in their dtype."""
    total = np.zeros((), values.dtype)
    for value in values:
        total = total + value
    return total


def fold_lanes(values: Array) -> Any:
    """Add [n] values in eight lanes, fold the lanes in halves, add the remainder.

    For half precision the lanes are folded in float32 and rounded once.
    """
    whole = values.size - values.size % LANES
    lanes = np.add.reduce(values[:whole].reshape(-1, LANES), axis=0)
    lanes = lanes.astype(wide_dtype(values.dtype))
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return lanes[0].astype(values.dtype) + plain_sum(values[whole:])


def lane_sum(values: Array) -> Array:
    """Return the sum of all elements, in their dtype: 0-d.

    Up to 8192 elements, the additions have the order of the original's kernel. For more
    elements the original uses threads, in an order that depends on the machine. These
    are summed in float64 here, and the sum is rounded once.
    """
    flat = values.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        if flat.size > LEAF:
            return np.asarray(np.sum(flat, dtype=np.float64).astype(flat.dtype))
        return np.asarray(fold_lanes(flat))


# -- pairs and counters ----------------------------------------------------------------


def as_pairs(grads_and_vars: Iterable[Any], owner: str) -> list[tuple[Any, Any]]:
    """Return (gradient, variable) pairs as a list; raise if there are none."""
    pairs = [(gradient, variable) for gradient, variable in grads_and_vars]
    if not pairs:
        raise NoGradientsError(
            f"{owner}: expected at least one (gradient, variable) pair, got an empty "
            "list; pass what compute_gradients returned."
        )
    return pairs


def check_pairs(
    grads_and_vars: Iterable[Any], owner: str, takes_wide: bool = False
) -> Pairs:
    """Return the pairs that an update can use; raise for others.

    ``takes_wide``: whether a float16 variable may have a float32 gradient.
    """
    pairs = as_pairs(grads_and_vars, owner)
    for gradient, variable in pairs:
        if gradient is None:
            continue
        is_rows = isinstance(gradient, Rows)
        shape = values_of(gradient).shape[1 if is_rows else 0 :]
        expected = variable.shape[1 if is_rows else 0 :]
        if shape != expected:
            raise ShapeError(
                f"{owner}: expected a gradient of shape {list(expected)} for "
                f"{variable.name!r}, got {list(shape)}; pass the gradients in the "
                "order of the variables."
            )
        dtype = values_of(gradient).dtype
        is_wide = takes_wide and variable.dtype == np.float16 and dtype == SINGLE
        if dtype != variable.dtype and not is_wide:
            raise DtypeError(
                f"{owner}: expected a gradient of dtype {variable.dtype} for "
                f"{variable.name!r}, got {dtype}; cast the gradient."
            )
    if all(gradient is None for gradient, _ in pairs):
        raise NoGradientsError(
            f"{owner}: expected a gradient for at least one variable, got None for "
            f"every one of {', '.join(variable.name for _, variable in pairs)}; "
            "check that the loss depends on these variables."
        )
    return pairs


def advance(counter: Variable | None) -> None:
    """Add one to a step counter, if there is one."""
    if counter is not None:
        counter.value = counter.value + counter.dtype.type(1)
