"""Mutants of the multitask wrapper and its clipping, and of the loop around rules."""

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
from lockstep.interface import Array, Rows
from lockstep.quirks import quirks_of

__all__ = ["mutants"]


def mutants() -> Sequence[Mutant]:
    """Return the mutants of the wrapper and of its clipping function."""
    return (*_of_the_wrapper(), *_of_the_clipping())


# Mistakes in the loop around the rules, in the wrapper and in the zero test.


def unchecked(self: Any, opt: Any, strict: bool = False) -> None:
    """Set the multitask wrapper up with any ``opt``, and never patch ``opt``."""
    self.inner_optimizer, self.quirks = opt, quirks_of(strict)
    self.last_step = None


def twice(method: Any) -> Any:
    """Make a method run twice in one call."""

    def advance(self: Any) -> None:
        method(self)
        method(self)

    return advance


def initial_zeros(method: Any) -> Any:
    """Make ``initial_slots`` return zeros of the right shapes."""
    return lambda self, variable: {
        name: np.zeros_like(values) for name, values in method(self, variable).items()
    }


def minus_zero_counts(gradient: Any, flush: bool = False) -> bool:
    """Return whether all elements are +0.0, so that -0.0 counts as nonzero."""
    values = gradient.values if isinstance(gradient, Rows) else gradient
    return not np.any(np.signbit(values) | (values != 0))


def nan_is_zero(gradient: Any, flush: bool = False) -> bool:
    """Return whether all elements are zero or NaN."""
    values = gradient.values if isinstance(gradient, Rows) else gradient
    return not np.any(np.nan_to_num(values, nan=0.0))


def infinity_is_zero(gradient: Any, flush: bool = False) -> bool:
    """Return whether all elements are zero or infinite."""
    values = gradient.values if isinstance(gradient, Rows) else gradient
    return not np.any(np.where(np.isinf(values), 0, values))


def duplicates_not_summed(gradient: Any, flush: bool = False) -> bool:
    """Return whether all elements are zero, without a sum of duplicate rows."""
    values = gradient.values if isinstance(gradient, Rows) else gradient
    return not np.any(values)


def flushed_even_in_half(values: Array) -> Array:
    """Replace subnormals by zero in every dtype, float16 included."""
    small = np.abs(values) < np.finfo(values.dtype).smallest_normal
    return np.where(small, values.dtype.type(0), values)


def keep_all(values: Array) -> Array:
    """Return the values with their subnormals."""
    return values


BASE = ("base_optimizers",)
MULTITASK = ("multitask",)
COUNTED = ("multitask", "variable_clipping")
CLIP = ("multitask_clip",)
WRAPPER = "multitask.MultitaskOptimizerWrapper"


def _of_the_wrapper() -> Sequence[Mutant]:
    from lockstep import reference

    default = instead(reference.MultitaskOptimizerWrapper)
    zero_test = "multitask.is_all_zero"
    powers = "optimizers.classes.RuleOptimizer.advance_shared"
    flush = "tensors.zero_test.flush_subnormals"
    return (
        Mutant(zero_test, "nothing is zero", constant(False), MULTITASK),
        Mutant(zero_test, "everything is zero", constant(True), MULTITASK),
        Mutant(zero_test, "-0.0 is not zero", instead(minus_zero_counts), MULTITASK),
        Mutant(zero_test, "NaN is zero", instead(nan_is_zero), MULTITASK),
        Mutant(zero_test, "infinity is zero", instead(infinity_is_zero), MULTITASK),
        Mutant(zero_test, "rows unsummed", instead(duplicates_not_summed), MULTITASK),
        Mutant(flush, "subnormals are kept", instead(keep_all), MULTITASK),
        Mutant(flush, "float16 too", instead(flushed_even_in_half), MULTITASK),
        Mutant(f"{WRAPPER}.__init__", "no check", instead(unchecked), MULTITASK),
        Mutant("strict.MultitaskOptimizerWrapper", "not strict", default, MULTITASK),
        Mutant(powers, "powers stay", constant(None), (*BASE, *MULTITASK)),
        Mutant(powers, "powers advance twice", twice, (*BASE, *MULTITASK)),
        Mutant(
            "optimizers.classes.advance", "step not counted", constant(None), COUNTED
        ),
        Mutant(
            "optimizers.classes.RuleOptimizer.initial_slots",
            "slots start at zero",
            initial_zeros,
            (*BASE, *MULTITASK),
        ),
    )


# Mistakes in the clipping function.


def no_limit(norm: Array, clip_norm: float) -> Array:
    """Return ``clip_norm / norm``, which also scales small gradients up."""
    return np.asarray(norm.dtype.type(clip_norm) / norm)


def finite_anyway(norm: Array, clip_norm: float) -> Array:
    """Return ``clip_norm / max(norm, clip_norm)``: 0 for an infinite norm."""
    limit = norm.dtype.type(clip_norm)
    return np.asarray(limit / np.maximum(norm, limit))


def zeros_for_absent(gradients: Any, factor: Array) -> list[Any]:
    """Scale the gradients, with a zero in place of each absent one."""
    return [np.zeros(1, np.float32) if g is None else g * factor for g in gradients]


def one_more(value: Array) -> Array:
    """Return the value plus 1."""
    return np.asarray(value + value.dtype.type(1))


def _of_the_clipping() -> Sequence[Mutant]:
    from lockstep import reference

    default = instead(reference.clip_gradients_by_global_norm)
    norm, factor = "multitask.global_norm", "multitask.clip_factor"
    scale = "multitask.scale_gradients"
    function = "strict.clip_gradients_by_global_norm"
    half = before(lambda pairs, clip_norm=20.0: (pairs, clip_norm / 2))
    return (
        Mutant(norm, "1 % too large", after(one_percent_more), CLIP),
        Mutant(norm, "starts at one", after(one_more), CLIP),
        Mutant(factor, "scaled up too", instead(no_limit), CLIP),
        Mutant(factor, "finite for any norm", instead(finite_anyway), CLIP),
        Mutant(scale, "forgotten", instead(lambda gradients, _: gradients), CLIP),
        Mutant(scale, "zeros for absent", instead(zeros_for_absent), CLIP),
        Mutant("multitask.as_pairs", "unchecked", instead(lambda p, _: list(p)), CLIP),
        Mutant(function, "not strict", default, CLIP),
        Mutant(function, "half the limit", lambda right: _keywords(half(right)), CLIP),
    )


def _keywords(function: Any) -> Any:
    return lambda pairs, clip_norm=20.0: function(pairs, clip_norm)
