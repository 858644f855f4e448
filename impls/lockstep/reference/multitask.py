"""The multitask wrapper and its clipping function, over NumPy variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import NO_STEP, Array, Gradient, Rows, StepReport
from lockstep.messages import multitask as words
from lockstep.messages.base.pairs import as_pairs, refuse_complex, refuse_integers
from lockstep.messages.nouns import REFERENCE
from lockstep.quirks import Quirks, quirks_of
from lockstep.reference.base.pairs import Pairs, advance, check_counter, check_pairs
from lockstep.reference.clipping.clip_gradients import (
    clip_factor,
    global_norm,
    scale_gradients,
)
from lockstep.reference.optimizers.classes import Optimizer, base_of
from lockstep.reference.tensors.variable import Variable
from lockstep.reference.tensors.zero_test import flush_subnormals, is_all_zero

__all__ = ["MultitaskOptimizerWrapper", "clip_gradients_by_global_norm"]


@documented
class MultitaskOptimizerWrapper(Optimizer):
    """Skip the update of a variable and its state if its gradient is all zero.

    ...

    Args:
        opt: any optimizer or wrapper of the reference.
        strict: reproduce the original with its quirks: ``opt`` is changed in place, its
            shared scalars advance on every call, float32 subnormals count as zero, a
            wrapper as ``opt`` is refused.
    """

    def __init__(self, opt: Optimizer, strict: bool = False) -> None:
        self.quirks = quirks_of(strict)
        nesting = self.quirks.multitask_nesting
        refused = nesting and isinstance(opt, MultitaskOptimizerWrapper)
        if refused or not isinstance(opt, Optimizer):
            raise words.not_an_optimizer(opt, REFERENCE, nesting)
        self.inner_optimizer = opt
        self.last_step: StepReport = NO_STEP
        if self.quirks.multitask_in_place:
            self._patch(opt)

    def _patch(self, opt: Optimizer) -> None:
        """Replace ``opt.update`` permanently by one that skips all-zero gradients.

        If ``opt`` is a wrapper, this has no effect, because a wrapper never calls its
        own ``update``. In the original, only an update that receives summed rows was
        replaced. So an optimizer that does not sum duplicates (gradient descent) does
        not test sparse gradients.
        """
        update = opt.update
        tests_rows = getattr(opt, "sums_duplicates", True)
        flush = self.quirks.multitask_subnormals

        def update_unless_zero(gradient: Array | Rows, variable: Variable) -> None:
            tested = tests_rows or not isinstance(gradient, Rows)
            if not (tested and is_all_zero(gradient, flush)):
                update(gradient, variable)

        opt.update = update_unless_zero  # type: ignore[method-assign]

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Apply the gradients that are not all zero.

        The global step always advances.
        """
        pairs = check_pairs(grads_and_vars, "MultitaskOptimizerWrapper")
        check_counter(global_step, words.WRAPPER)
        quirks = self.quirks
        flush, in_place = quirks.multitask_subnormals, quirks.multitask_in_place
        zero = [g is not None and is_all_zero(g, flush) for g, _ in pairs]
        self.last_step = words.report(
            [v.name for _, v in pairs], zero, [g is None for g, _ in pairs]
        )
        advances = quirks.multitask_shared_state
        if not (self.last_step.applied or (in_place and advances)):
            self.inner_optimizer.note_no_gradients()
            if advances:
                base_of(self.inner_optimizer).advance_shared()
            advance(global_step)
            return
        filtered: Pairs = [
            (None if is_zero and not in_place else gradient, variable)
            for is_zero, (gradient, variable) in zip(zero, pairs, strict=True)
        ]
        self.inner_optimizer.apply_gradients(filtered, global_step, name)
        names = [variable.name for _, variable in pairs]
        inner = getattr(self.inner_optimizer, "last_step", None)
        self.last_step = words.report_through(self.last_step, inner, names)

    def get_name(self) -> str:
        """Return the wrapped optimizer's name."""
        return self.inner_optimizer.get_name()

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the wrapped optimizer."""
        return self.inner_optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer."""
        return self.inner_optimizer.get_slot_names()

    def variables(self) -> list[Array]:
        """Return the state of the wrapped optimizer; the wrapper has none."""
        return self.inner_optimizer.variables()

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)


@documented
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Gradient, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
    strict: bool = False,
) -> tuple[list[tuple[Gradient, Any]], Array]:
    """Scale all gradients so that their global norm is at most ``clip_norm``.

    ...
    """
    pairs = as_pairs(gradients_variables, "clip_gradients_by_global_norm")
    gradients = [gradient for gradient, _ in pairs]
    present = [gradient for gradient in gradients if gradient is not None]
    quirks = quirks_of(strict)
    _check_clipping(present, clip_norm, quirks)
    dtype = np.dtype(np.float32)
    if quirks.multitask_clip_float16 and present:
        dtype = _values(present[0]).dtype
    flush = quirks.multitask_subnormals
    if flush:
        gradients = [_flushed(gradient) for gradient in gradients]
        present = [gradient for gradient in gradients if gradient is not None]
    nonzero = [gradient for gradient in present if not is_all_zero(gradient)]
    norm = global_norm(nonzero, dtype, flush)
    if error_if_nonfinite and not np.isfinite(norm):
        raise words.NONFINITE_NORM.error(norm=float(norm))
    with np.errstate(all="ignore"):
        factor = clip_factor(norm, clip_norm, flush)
        clipped = scale_gradients(gradients, factor)
    if flush:
        clipped = [_flushed(gradient) for gradient in clipped]
    variables = [variable for _, variable in pairs]
    return list(zip(clipped, variables, strict=True)), norm


def _check_clipping(
    present: list[Array | Rows], clip_norm: float, quirks: Quirks
) -> None:
    if quirks.multitask_clip_sparse:
        words.refuse_sparse(any(isinstance(gradient, Rows) for gradient in present))
    dtypes = [str(np.asarray(_values(gradient)).dtype) for gradient in present]
    if quirks.multitask_clip_dtypes:
        words.refuse_mixed_dtypes(dtypes)
    if not quirks.multitask_clip_range:
        words.check_clip_norm(clip_norm)
    if not quirks.multitask_clip_dtypes:
        refuse_integers(words.CLIP, dtypes)
        refuse_complex(words.CLIP, dtypes)


def _values(gradient: Array | Rows) -> Array:
    return gradient.values if isinstance(gradient, Rows) else gradient


def _flushed(gradient: Gradient) -> Gradient:
    if gradient is None or isinstance(gradient, Rows):
        return gradient
    return flush_subnormals(gradient)
