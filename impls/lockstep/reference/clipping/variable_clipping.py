"""The row-clipping wrapper, over NumPy variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.errors import warn_user
from lockstep.interface import NO_STEP, Array, Gradient, Rows, StepReport
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.clipping import refusals
from lockstep.messages.clipping import variable_clipping as words
from lockstep.messages.masters import refusals as masters_refusals
from lockstep.messages.nouns import REFERENCE
from lockstep.messages.workers.agn import refuse_row_clipping_around
from lockstep.quirks import Quirks, quirks_of
from lockstep.reference.base.pairs import check_pairs
from lockstep.reference.clipping.clip_rows import clip_rows, excess, flushed
from lockstep.reference.optimizers.classes import Optimizer
from lockstep.reference.tensors.variable import Variable

__all__ = ["VariableClippingOptimizer", "share_row_limits"]

Axes = tuple[int, ...]


@documented
class VariableClippingOptimizer(Optimizer):
    """After each update, hold the norm of a variable's rows to a limit.

    ...
    """

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Variable, Iterable[int]],
        max_norm: float | Mapping[Variable, float],
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
        strict: bool = False,
    ) -> None:
        if not isinstance(opt, Optimizer):
            raise not_an_optimizer(words.WRAPPER, opt, REFERENCE)
        words.check_name(name)
        words.require_mapping(vars_to_clip_dims)
        for variable in vars_to_clip_dims:
            if not isinstance(variable, Variable):
                raise refusals.NOT_A_KEY.error(
                    nouns=REFERENCE, got=type(variable).__name__
                )
        axes = {v: words.listed_axes(v.name, d) for v, d in vars_to_clip_dims.items()}
        self.quirks = quirks = quirks_of(strict)
        names = {v: v.name for v in axes}
        limits = words.limits_of(max_norm, names, quirks.row_clip_range)
        if not quirks.arguments_unchecked:
            refuse_row_clipping_around(opt)
        if not quirks.row_clip_axes:
            axes = {variable: resolved(variable, a) for variable, a in axes.items()}
        listed = {v: words.Axes.of(a, limits[v]) for v, a in axes.items()}
        if not quirks.arguments_unchecked:
            refuse_masters(opt, listed)
        self.inner_optimizer = opt
        self.vars_to_clip_dims = listed
        self.max_norm = max_norm
        self.name = name
        self.last_step: StepReport = NO_STEP

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Update the variables with the wrapped optimizer, then clip their rows."""
        if self.quirks.row_clip_iterator and isinstance(grads_and_vars, Iterator):
            self.inner_optimizer.apply_gradients(grads_and_vars, global_step, name)
            return
        pairs = check_pairs(grads_and_vars, words.WRAPPER)
        touched = [
            (variable, named_rows(gradient))
            for gradient, variable in pairs
            if gradient is not None and variable in self.vars_to_clip_dims
        ]
        for variable, _ in touched:
            resolved(variable, self.vars_to_clip_dims[variable])
        self.inner_optimizer.apply_gradients(pairs, global_step, name)
        too_large = list(starmap(self.clip, touched))
        self.last_step = words.report(
            getattr(self.inner_optimizer, "last_step", None),
            [variable.name for _, variable in pairs],
            [gradient is None for gradient, _ in pairs],
            sum(flags.size for flags in too_large),
            sum(int(flags.sum()) for flags in too_large),
        )

    def clip(self, variable: Variable, indices: Array | None) -> Array:
        """Clip a variable, or its rows [k]; return which norms were too large.

        A row that is listed several times has one flag. Negative axes that are not
        resolved do not count as dimension 0.
        """
        axes = self.vars_to_clip_dims[variable]
        max_norm = axes.max_norm
        if indices is not None and 0 in axes:
            warn_user(words.whole_variable(variable.name, axes))
            indices = None
        rows = ... if indices is None else indices
        before = np.asarray(variable.value)[rows]
        with np.errstate(all="ignore"):
            clipped, too_large = clip_rows(before, axes, max_norm)
            if self.quirks.row_clip_subtracted:
                difference = excess(before, axes, max_norm, self.quirks)
                variable.value = subtract_rows(
                    variable.value, indices, difference, self.quirks
                )
            else:
                variable.value = np.array(variable.value)
                variable.value[rows] = clipped
        # An unresolved negative axis for dimension 0 gives one norm over all rows.
        if indices is None or len(too_large) < len(indices):
            return too_large
        return too_large[np.unique(indices, return_index=True)[1]]

    def get_name(self) -> str:
        """Return the name from the constructor."""
        return self.name

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the wrapped optimizer."""
        return self.inner_optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer."""
        return self.inner_optimizer.get_slot_names()

    def variables(self) -> list[Array]:
        """Return the state of the wrapped optimizer; the wrapper has none."""
        hidden = self.quirks.row_clip_variables
        return [] if hidden else self.inner_optimizer.variables()

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)


def share_row_limits(variable: Variable, other: Variable, inner: Any) -> None:
    """Make row-clipping wrappers inside clip ``other`` as they clip ``variable``."""
    while inner is not None:
        if isinstance(inner, VariableClippingOptimizer):
            listed = inner.vars_to_clip_dims
            if variable in listed:
                listed[other] = listed[variable]
        inner = vars(inner).get("inner_optimizer")


def refuse_masters(opt: Optimizer, listed: Iterable[Variable]) -> None:
    """Raise for variables that ``opt`` trains through float32 masters."""
    trains_master = getattr(opt, "trains_master", None)
    for variable in listed:
        if trains_master is not None and trains_master(variable):
            raise masters_refusals.CLIPS_OUTSIDE.error(name=variable.name)


def resolved(variable: Variable, axes: Sequence[int]) -> Axes:
    """Return the axes of a variable as nonnegative numbers."""
    return words.resolved_axes(variable.name, axes, variable.value.ndim)


def named_rows(gradient: Array | Rows) -> Array | None:
    """Return the [k] indices of a sparse gradient; None for a dense one."""
    return gradient.indices if isinstance(gradient, Rows) else None


def subtract_rows(
    values: Array, indices: Array | None, difference: Array, quirks: Quirks
) -> Array:
    """Return ``values`` minus ``difference``, in whole or at the rows ``indices`` [k].

    The difference was computed from the rows before this update. With
    ``row_clip_duplicates``, it is subtracted k times from a row that is listed k times.
    """
    flush = quirks.row_clip_subnormals
    if indices is None:
        return flushed(flushed(values, flush) - difference, flush)
    named = list(zip(indices.tolist(), difference, strict=True))
    values = values.copy()
    for index, row in named if quirks.row_clip_duplicates else dict(named).items():
        values[index] = flushed(flushed(values[index], flush) - row, flush)
    return values
