"""The multitask wrapper and its clipping function, over NumPy variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from lockstep.checks import check_norm_limit
from lockstep.errors import (
    DtypeError,
    NonFiniteNormError,
    NotAnOptimizerError,
    UnsupportedError,
)
from lockstep.interface import Array, Gradient, Rows, StepReport
from lockstep.reference import arrays, clipping
from lockstep.reference.arrays import Pairs, Variable, flush_subnormals, is_all_zero
from lockstep.reference.optimizers import Optimizer, RuleOptimizer, Wrapper

CLIP = "clip_gradients_by_global_norm"


class MultitaskOptimizerWrapper(Wrapper):
    """Skip the update of a variable and its state if its gradient is all zero.

    For each variable w with gradient g and state s:

        any(g != 0):  w, s = opt(w, s, g)
        otherwise:    w and s keep every bit, as if g were None

    -0.0 is zero, NaN and infinity are not. The duplicate rows of a sparse gradient are
    summed before the test. If no gradient is left to apply, ``opt`` takes no step, but
    the global step advances.

    Args:
        opt: any optimizer or wrapper of the reference.
        strict: reproduce the original with its quirks: ``opt`` is changed in place, its
            shared scalars advance on every call, float32 subnormals count as zero, a
            multitask wrapper as ``opt`` is refused.

    Raises:
        NotAnOptimizerError: a TypeError; ``opt`` is no optimizer of the reference.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.MultitaskOptimizerWrapper``.

    Example:
        >>> body, head = Variable("body", [1.0]), Variable("head", [1.0])
        >>> wrapper = MultitaskOptimizerWrapper(MomentumOptimizer(0.25, 0.5))
        >>> wrapper.apply_gradients([(np.array([1.0]), body), (np.array([0.0]), head)])
        >>> body.value.tolist(), head.value.tolist(), wrapper.last_step.skipped
        ([0.75], [1.0], ('head',))
    """

    def __init__(self, opt: Optimizer, strict: bool = False) -> None:
        # multitask-nesting
        is_refused = strict and isinstance(opt, MultitaskOptimizerWrapper)
        if is_refused or not isinstance(opt, Optimizer):
            raise NotAnOptimizerError(
                "MultitaskOptimizerWrapper: expected a lockstep.reference optimizer, "
                f"got {type(opt).__name__}; leave strict off to nest wrappers."
            )
        self.inner_optimizer = opt
        self.strict = strict
        if not (strict and isinstance(opt, RuleOptimizer)):
            return
        update = opt.update  # multitask-in-place

        def update_unless_zero(gradient: Array | Rows, variable: Variable) -> None:
            # The original replaced only an update that receives summed rows. So an
            # optimizer that does not sum duplicates does not test sparse gradients.
            is_tested = opt.sums_duplicates or not isinstance(gradient, Rows)
            if not (is_tested and is_all_zero(gradient, True)):
                update(gradient, variable)

        opt.update = update_unless_zero  # type: ignore[method-assign]

    def apply(self, pairs: Pairs, global_step: Variable | None) -> None:
        """Apply the gradients that are not all zero."""
        # multitask-subnormals
        zero = [g is not None and is_all_zero(g, self.strict) for g, _ in pairs]
        self.last_step = report(pairs, zero)
        if self.strict:  # multitask-shared-state: the patched update leaves zeros out.
            filtered = pairs
        elif self.last_step.applied:
            both = zip(zero, pairs, strict=True)
            filtered = [(None if is_zero else g, v) for is_zero, (g, v) in both]
        else:
            arrays.advance(global_step)
            return
        self.inner_optimizer.apply_gradients(filtered, global_step)
        inner = getattr(self.inner_optimizer, "last_step", None)
        if inner is not None and not inner.applied:
            reason = f"{self.last_step.reason}; {inner.reason}"
            skipped = tuple(variable.name for _, variable in pairs)
            self.last_step = inner._replace(reason=reason, skipped=skipped)


def report(pairs: Pairs, zero: list[bool]) -> StepReport:
    """Return the report of a step: which variables were not updated, and why."""
    both = zip(pairs, zero, strict=True)
    skipped = tuple(v.name for (g, v), is_zero in both if is_zero or g is None)
    if not skipped:
        return StepReport(True, "every gradient had a nonzero element", ())
    counts = {"all zero": sum(zero), "absent": len(skipped) - sum(zero)}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    reason = f"of {len(pairs)} gradients {' and '.join(parts)}"
    return StepReport(len(skipped) < len(pairs), reason, skipped)


def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Gradient, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
    strict: bool = False,
) -> tuple[list[tuple[Gradient, Any]], Array]:
    """Scale all gradients so that their global norm is at most ``clip_norm``.

    norm = sqrt(sum g^2) over the gradients that are present and not all zero;
    s = clip_norm min(1 / norm, 1 / clip_norm); each g becomes g s. A norm that is not
    finite makes every gradient NaN.

    Args:
        gradients_variables: iterable of (gradient or None, variable), dense or sparse.
        clip_norm: the largest global norm that is not clipped, > 0 and finite.
        error_if_nonfinite: raise a NonFiniteNormError instead of returning NaN.
        strict: as the original: the norm has the gradients' dtype (in float16 it
            overflows), subnormals are flushed, sparse gradients and mixed dtypes are
            refused, ``clip_norm`` is not checked.

    Returns:
        The pairs with clipped gradients, and the norm: 0-d, float32 by default.

    Raises:
        ValueError: ``clip_norm`` is out of range, the list is empty; strict: sparse.
        TypeError: strict: mixed dtypes.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.clip_gradients_by_global_norm``.

    Example:
        >>> w = Variable("w", np.zeros(2, np.float32))
        >>> pairs, norm = clip_gradients_by_global_norm([(np.float32([3, 4]), w)], 2.5)
        >>> pairs[0][0].tolist(), float(norm)
        ([1.5, 2.0], 5.0)
    """
    pairs = arrays.as_pairs(gradients_variables, CLIP)
    gradients: list[Gradient] = [gradient for gradient, _ in pairs]
    if not strict:
        check_norm_limit(CLIP, "clip_norm", clip_norm)
    dtype = dtype_of_all(gradients) if strict else arrays.SINGLE
    clipped, norm = clipped_in(dtype, gradients, clip_norm, flush=strict)
    if error_if_nonfinite and not np.isfinite(norm):
        raise NonFiniteNormError(
            f"{CLIP}: expected a finite global norm, got {norm}; look for the gradient "
            "that overflowed, or leave error_if_nonfinite off."
        )
    variables = [variable for _, variable in pairs]
    return list(zip(clipped, variables, strict=True)), norm


def clipped_in(
    dtype: np.dtype[Any], gradients: list[Gradient], clip_norm: float, flush: bool
) -> tuple[list[Gradient], Array]:
    """Return clipped gradients and their norm in ``dtype``; strict: ``flush``."""

    def flushed(some: list[Gradient]) -> list[Gradient]:
        if not flush:  # multitask-subnormals
            return some
        is_dense = np.ndarray | np.generic
        return [flush_subnormals(g) if isinstance(g, is_dense) else g for g in some]

    gradients = flushed(gradients)
    nonzero = [g for g in gradients if g is not None and not is_all_zero(g)]
    norm = clipping.global_norm(nonzero, dtype, flush)
    with np.errstate(all="ignore"):
        factor = np.full((), np.nan, norm.dtype)
        if np.isfinite(norm):
            factor = clipping.clip_scale(norm, clip_norm, flush)
        clipped = clipping.scale_gradients(gradients, factor)
        return flushed(clipped), norm


def dtype_of_all(gradients: list[Any]) -> np.dtype[Any]:
    """Strict: return the dtype of dense gradients; raise for what cannot be clipped."""
    present = [gradient for gradient in gradients if gradient is not None]
    if any(isinstance(gradient, Rows) for gradient in present):
        raise UnsupportedError(  # multitask-clip-sparse
            f"{CLIP}: expected dense gradients, got a sparse one; the original cannot "
            "clip them; leave strict off."
        )
    dtypes = [np.asarray(gradient).dtype for gradient in present] or [arrays.SINGLE]
    if len(set(dtypes)) > 1:
        raise DtypeError(  # multitask-clip-dtypes
            f"{CLIP}: expected gradients of one dtype, got "
            f"{' and '.join(sorted(map(str, set(dtypes))))}; the original cannot mix "
            "them; leave strict off."
        )
    return dtypes[0]  # multitask-clip-float16
