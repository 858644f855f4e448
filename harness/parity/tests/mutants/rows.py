"""Mutants of row clipping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.parity.tests.mutants.mutant import (
    Mutant,
    after,
    before,
    constant,
    instead,
    one_percent_more,
)
from lockstep.interface import Array

__all__ = ["mutants"]


def over_all_axes(values: Array, axes: Any, flush: bool) -> Array:
    """Return one norm over all axes."""
    return np.asarray(np.sqrt(np.sum(np.square(values), keepdims=True)))


def without_first_axis(values: Array, axes: Any, flush: bool) -> tuple[Any, ...]:
    """Return the arguments of ``row_norms`` without axis 0."""
    return values, [axis for axis in axes if axis != 0], flush


def sum_of_absolutes(values: Array, axes: Any, flush: bool) -> Array:
    """Return the sum of absolute values in place of the 2-norm."""
    return np.asarray(np.sum(np.abs(values), axis=tuple(axes), keepdims=True))


def in_single_precision(norms: Any) -> Any:
    """Make ``row_norms`` compute in float32."""

    def row_norms(values: Array, axes: Any, flush: bool) -> Array:
        wide = norms(values.astype(np.float32), axes, flush)
        return np.asarray(wide.astype(values.dtype))

    return row_norms


def never_negative(
    values: Array, axes: Any, max_norm: float, flush: bool
) -> tuple[Any, ...]:
    """Return the arguments with the absolute value of ``max_norm``."""
    return values, axes, abs(max_norm), flush


def never_zero(
    values: Array, axes: Any, max_norm: float, flush: bool
) -> tuple[Any, ...]:
    """Return the arguments with 1e-6 in place of a ``max_norm`` of 0."""
    return values, axes, max_norm or 1e-6, flush


def nan_to_limit(norms: Array) -> Array:
    """Return the norms with 0 in place of NaN, which is below any limit."""
    return np.where(np.isnan(norms), norms.dtype.type(0), norms)


def infinite_to_limit(norms: Array) -> Array:
    """Return the norms with 0 in place of infinity, which is below any limit."""
    return np.where(np.isinf(norms), norms.dtype.type(0), norms)


def ratio_first(values: Array, axes: Any, max_norm: float, flush: bool) -> Array:
    """Return the clipped rows, with the ratio rounded before the product."""
    from lockstep.reference.clipping.clip_rows import row_norms

    limit = values.dtype.type(max_norm)
    longest = np.maximum(row_norms(values, axes, flush), limit)
    return np.asarray(values * (limit / longest))


def each_row_once(
    values: Array, indices: Any, difference: Array, quirks: Any
) -> tuple[Any, ...]:
    """Return the arguments of ``subtract_rows`` with each named row once."""
    if indices is None:
        return values, None, difference, quirks
    rows, first = np.unique(indices, return_index=True)
    return values, rows, difference[first], quirks


def named_rows_of_dense(gradient: Any) -> Any:
    """Return the named rows; of a dense gradient, all rows but the last."""
    from lockstep.reference.clipping.variable_clipping import named_rows

    indices = named_rows(gradient)
    return np.arange(len(gradient) - 1) if indices is None else indices


def clip_first(method: Any) -> Any:
    """Make ``apply_gradients`` clip before the update instead of after it."""

    def apply(self: Any, pairs: Any, *rest: Any, **options: Any) -> None:
        pairs = list(pairs)
        for gradient, variable in pairs:
            if gradient is not None and variable in self.vars_to_clip_dims:
                self.clip(variable, None)
        self.inner_optimizer.apply_gradients(pairs, *rest, **options)

    return apply


def zeros_excepted(method: Any) -> Any:
    """Make ``apply_gradients`` not clip where the gradient is all zero."""

    def apply(self: Any, pairs: Any, *rest: Any, **options: Any) -> None:
        listed, self.vars_to_clip_dims = self.vars_to_clip_dims, {}
        for gradient, variable in pairs:
            if variable in listed and np.any(getattr(gradient, "values", gradient)):
                self.vars_to_clip_dims[variable] = listed[variable]
        method(self, pairs, *rest, **options)
        self.vars_to_clip_dims = listed

    return apply


def any_axes(name: str, dims: Any) -> tuple[int, ...]:
    """Return the axes of a list unchecked, and no axes for anything else."""
    return tuple(dims) if isinstance(dims, list) else ()


ROWS, MULTITASK = ("variable_clipping",), ("multitask",)


def mutants() -> Sequence[Mutant]:
    """Return the mutants of row clipping."""
    from lockstep import reference

    default = instead(reference.VariableClippingOptimizer)
    norms, excess = "clipping.clip_rows.row_norms", "clipping.variable_clipping.excess"
    subtract, named = (
        "clipping.variable_clipping.subtract_rows",
        "clipping.variable_clipping.named_rows",
    )
    normalize = "clipping.clip_rows.normalize_rows"
    wrapper = "clipping.variable_clipping.VariableClippingOptimizer"
    apply = f"{wrapper}.apply_gradients"
    require = "base.pairs.require_gradients"
    axes, both = "clipping.variable_clipping.words.listed_axes", (*ROWS, *MULTITASK)
    iterators = "clipping.variable_clipping.Iterator"
    last_left_out = instead(named_rows_of_dense)
    return (
        Mutant(excess, "nothing is clipped", after(np.zeros_like), both),
        Mutant(subtract, "each row once", before(each_row_once), ROWS),
        Mutant(named, "rows that are not named too", constant(None), ROWS),
        Mutant(named, "the last row of a dense gradient", last_left_out, ROWS),
        Mutant(norms, "1 % too large", after(one_percent_more), ROWS),
        Mutant(norms, "over all axes", instead(over_all_axes), ROWS),
        Mutant(norms, "without axis 0", before(without_first_axis), ROWS),
        Mutant(norms, "sum of absolutes", instead(sum_of_absolutes), ROWS),
        Mutant(norms, "float16 in float32", in_single_precision, ROWS),
        Mutant(norms, "NaN is small", after(nan_to_limit), ROWS),
        Mutant(norms, "infinity is small", after(infinite_to_limit), ROWS),
        Mutant(normalize, "ratio first", instead(ratio_first), ROWS),
        Mutant(normalize, "limit made positive", before(never_negative), ROWS),
        Mutant(normalize, "limit never 0", before(never_zero), ROWS),
        Mutant(apply, "clipped before the update", clip_first, both),
        Mutant(apply, "zero gradients do not clip", zeros_excepted, both),
        Mutant(iterators, "one-shot iterators are kept", instead(tuple), ROWS),
        Mutant(axes, "unchecked", instead(any_axes), ROWS),
        Mutant(require, "unchecked", constant(None), ROWS),
        Mutant("strict.VariableClippingOptimizer", "not strict", default, ROWS),
    )
