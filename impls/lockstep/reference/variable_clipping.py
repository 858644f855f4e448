"""The row-clipping wrapper, over NumPy variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from operator import index
from typing import Any

import numpy as np

from lockstep.checks import CHOOSE, is_positive, number_of, require
from lockstep.errors import (
    AxesError,
    OutOfRangeError,
    UnsupportedError,
)
from lockstep.interface import Array, Gradient, Rows
from lockstep.pipeline import has_layer, layers_of
from lockstep.reference import arrays
from lockstep.reference.arrays import LARGEST, Pairs, Variable, flush_subnormals
from lockstep.reference.optimizers import Optimizer, Wrapper

OWNER = "VariableClippingOptimizer"

NORM_ERROR = 2.0**-50
MARGINS = {
    "float16": 2.0**-11 + 2.0**-23 + NORM_ERROR,
    "bfloat16": 2.0**-8 + 2.0**-23 + NORM_ERROR,
    "float32": 2.0**-23 + NORM_ERROR,
    "float64": 2.0**-52 + NORM_ERROR,
}
"""Dtype -> margin below the limit, relative to it: a sum of rounding errors.

The factor and the product are rounded to ``wide``: together its machine epsilon. Half
precision is rounded once more, by half its machine epsilon. The float64 norm errs, too.
"""


# -- the default -----------------------------------------------------------------------


def clip_rows(
    values: Array, axes: Sequence[int], max_norm: float
) -> tuple[Array, Array]:
    """Return w with norms over ``axes`` of at most max_norm, and where n was larger.

    n = sqrt(sum over axes of w^2) and f = limit / n are computed in float64, w' = w f
    in ``wide``, to which limit and f are rounded: the dtype of w, or float32 for half
    precision. Where n <= limit, w keeps its bits. If rounding leaves the norm of w'
    above the limit, f = limit / n (1 - margin) instead. So clipping again changes
    nothing. A norm of NaN makes its row NaN. An infinite norm makes finite elements 0.
    """
    wide = arrays.wide_dtype(values.dtype)
    limit = np.float64(wide.type(max_norm))
    norms = norms_in_float64(values, axes)
    too_large = np.asarray(~(norms <= limit))
    clipped = scaled(values, limit / norms, wide)
    shorter = scaled(values, limit / norms * (1 - MARGINS[str(values.dtype)]), wide)
    above = norms_in_float64(clipped, axes) > limit
    return np.where(too_large, np.where(above, shorter, clipped), values), too_large


def norms_in_float64(values: Array, axes: Sequence[int]) -> Array:
    """Return sqrt(sum over axes of w^2); summed ``axes`` keep length 1."""
    squares = np.square(values.astype(np.float64))
    return np.asarray(np.sqrt(np.sum(squares, axis=tuple(axes), keepdims=True)))


def scaled(values: Array, factors: Array, wide: np.dtype[Any]) -> Array:
    """Return w f in the dtype of w, with f rounded to ``wide`` first."""
    product = values.astype(wide) * factors.astype(wide)
    return np.asarray(product.astype(values.dtype))


# -- strict ----------------------------------------------------------------------------


def excess(values: Array, axes: Sequence[int], max_norm: float) -> Array:
    """Return w - c, which the original subtracts from w, even below the limit.

    c = w max_norm / max(n, max_norm), where n is the norm over ``axes``, all in the
    dtype of w (row-clip-below, row-clip-float16). As in the original's kernels,
    subnormal float32 inputs and outputs become 0 (row-clip-subnormals).
    """
    values = flush_subnormals(values)
    limit = flush_subnormals(np.asarray(max_norm, values.dtype))
    product = flush_subnormals(np.asarray(values * limit))
    longest = np.maximum(strict_norms(values, axes), limit)
    return flush_subnormals(values - flush_subnormals(product / longest))


def strict_norms(values: Array, axes: Sequence[int]) -> Array:
    """Return n = sqrt(sum over axes of w^2); summed ``axes`` keep length 1."""
    return np.asarray(np.sqrt(sum_over(flush_subnormals(np.square(values)), axes)))


def sum_over(values: Array, axes: Sequence[int]) -> Array:
    """Return the sum over ``axes``, which keep length 1, in the original's order.

    The original's kernel adds element by element. If ``axes`` are the last axes, the
    elements of a sum are contiguous, and it adds them in eight lanes.
    """
    rank = values.ndim
    axes = [axis % rank for axis in axes]
    others = [axis for axis in range(rank) if axis not in axes]
    shape = [1 if axis in axes else values.shape[axis] for axis in range(rank)]
    length = int(np.prod([values.shape[axis] for axis in axes]))
    rows = values.transpose(*others, *sorted(axes)).reshape(int(np.prod(shape)), length)
    contiguous = others == list(range(len(others)))
    add = arrays.fold_lanes if contiguous else arrays.plain_sum
    return np.array([add(row) for row in rows], values.dtype).reshape(shape)


def subtract_rows(values: Array, indices: Array | None, difference: Array) -> Array:
    """Return ``values`` - ``difference``, k times in a row that is listed k times."""
    if indices is None:
        return flush_subnormals(flush_subnormals(values) - difference)
    values = values.copy()
    for k, row in zip(indices.tolist(), difference, strict=True):
        # row-clip-duplicates: the difference is that of the row before this update.
        values[k] = flush_subnormals(flush_subnormals(values[k]) - row)
    return values


# -- the wrapper -----------------------------------------------------------------------


class VariableClippingOptimizer(Wrapper):
    """After each update, hold the norm of a variable's rows to a limit.

    For each variable w that is listed and has a gradient: after ``opt`` has updated it,
    n = sqrt(sum over its axes of w^2), and where n > max_norm, w = w max_norm / n. Rows
    with a norm up to max_norm keep their bits. After a sparse gradient, only its rows
    are read and written, even if ``opt`` updates others, unless the norm is over axis
    0.

    Args:
        opt: any optimizer or wrapper of the reference.
        vars_to_clip_dims: variable -> list or tuple of axes over which the norm is
            computed: [1] for the rows of a matrix, [] for its elements. A variable that
            is not listed is never clipped.
        max_norm: the largest norm that is not clipped, > 0 and finite.
        use_locking, colocate_clip_ops_with_vars, name: without effect.
        strict: reproduce the original with its quirks: rows below the norm change by
            rounding, a row listed k times is corrected k times, a negative axis for
            dimension 0 covers only the listed rows, float16 squares overflow, pairs
            from a one-shot iterator are not clipped, ``max_norm`` is not checked.

    Raises:
        AxesError: a TypeError; the axes of a variable are no list of integers.
        ValueError: ``max_norm``, an axis that a variable does not have.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.VariableClippingOptimizer``.

    Example:
        >>> table = Variable("table", np.full((3, 2), 4.0))
        >>> sgd = GradientDescentOptimizer(1.0)
        >>> optimizer = VariableClippingOptimizer(sgd, {table: [1]}, max_norm=2.5)
        >>> rows = Rows(np.array([1]), np.array([[1.0, 0.0]]), (3, 2))
        >>> optimizer.apply_gradients([(rows, table)])
        >>> table.value.tolist()
        [[4.0, 4.0], [1.5, 2.0], [4.0, 4.0]]
    """

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Variable, Iterable[int]],
        max_norm: float,
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
        strict: bool = False,
    ) -> None:
        try:
            listed = dict(vars_to_clip_dims)
            self.axes = {w: tuple(map(index, axes)) for w, axes in listed.items()}
        except TypeError:
            raise AxesError(
                f"{OWNER}: vars_to_clip_dims: expected a dict from variables to lists "
                f"of axes, got {vars_to_clip_dims!r:.80}; for one matrix w whose rows "
                "are to be clipped give {w: [1]}."
            ) from None
        if not strict:
            fine = is_positive(number_of(max_norm))  # row-clip-range
            require(OWNER, "max_norm", max_norm, fine, "a finite number > 0", CHOOSE)
            # row-clip-axes: strict resolves no negative axis.
            self.axes = {v: resolved(v, axes) for v, axes in self.axes.items()}
            has_masters = has_layer(opt, "MixedPrecisionOptimizerWrapper")
            is_half = any(str(variable.dtype) in LARGEST for variable in self.axes)
            if has_layer(opt, "AGNOptimizer") or (has_masters and is_half):
                raise UnsupportedError(
                    f"{OWNER}: expected an optimizer that updates the listed variables "
                    f"and no others, got {type(opt).__name__}, which has float32 "
                    "masters or shared weights; put the row clipping inside of it."
                )
        self.max_norm = max_norm
        self.inner_optimizer = opt
        self.strict = strict

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
    ) -> None:
        """Update the variables with the wrapped optimizer, then clip their rows."""
        if self.strict and isinstance(grads_and_vars, Iterator):  # row-clip-iterator
            self.inner_optimizer.apply_gradients(grads_and_vars, global_step)
        else:
            super().apply_gradients(grads_and_vars, global_step)

    def apply(self, pairs: Pairs, global_step: Variable | None) -> None:
        """Update the variables with the wrapped optimizer, then clip their rows."""
        touched = [
            (variable, gradient.indices if isinstance(gradient, Rows) else None)
            for gradient, variable in pairs
            if gradient is not None and variable in self.axes
        ]
        for variable, _ in touched:
            resolved(variable, self.axes[variable])
        self.inner_optimizer.apply_gradients(pairs, global_step)
        too_large = list(starmap(self.clip, touched))
        rows = sum(flags.size for flags in too_large)
        clipped = sum(int(flags.sum()) for flags in too_large)
        self.last_step = self.report(pairs, f"{clipped} of {rows} rows clipped")

    def clip(self, variable: Variable, indices: Array | None) -> Array:
        """Clip a variable, or its rows [k]; return which norms were too large.

        A row that is listed several times has one flag. Negative axes that are not
        resolved do not count as dimension 0.
        """
        axes = self.axes[variable]
        if 0 in axes:  # Such a norm needs all rows.
            indices = None
        rows = ... if indices is None else indices
        before = np.asarray(variable.value)[rows]
        with np.errstate(all="ignore"):
            clipped, too_large = clip_rows(before, axes, self.max_norm)
            if self.strict:  # row-clip-written
                difference = excess(before, axes, self.max_norm)
                variable.value = subtract_rows(variable.value, indices, difference)
            else:
                variable.value = np.array(variable.value)
                variable.value[rows] = clipped
        # An unresolved negative axis for dimension 0 gives one norm over all rows.
        if indices is None or len(too_large) < len(indices):
            return too_large
        return too_large[np.unique(indices, return_index=True)[1]]


def share_row_axes(variable: Variable, other: Variable, stack: Any) -> None:
    """Make row clipping in a stack clip ``other`` as it clips ``variable``."""
    for layer in layers_of(stack):
        if isinstance(layer, VariableClippingOptimizer) and variable in layer.axes:
            layer.axes[other] = layer.axes[variable]


def resolved(variable: Variable, axes: Sequence[int]) -> tuple[int, ...]:
    """Return ``axes`` as nonnegative numbers, ascending; raise for a wrong one."""
    rank = variable.value.ndim
    numbers = sorted(axis % rank for axis in axes if -rank <= axis < rank)
    if len(set(numbers)) < len(axes):
        raise OutOfRangeError(
            f"{OWNER}: vars_to_clip_dims: expected axes of {variable.name!r}, which "
            f"has {rank}, each once, got {list(axes)}; axes count from 0, or from -1 "
            "at the end."
        )
    return tuple(numbers)
