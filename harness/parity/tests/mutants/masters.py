"""Mutants of the float32 masters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.parity.tests.mutants.mutant import (
    Mutant,
    after,
    constant,
    instead,
    of_class,
)
from lockstep.interface import Rows

__all__ = ["mutants"]

MASTERS = ("mixed_precision_wrapper",)


def plain_cast(values: Any, dtype: Any) -> Any:
    """Cast the values without clamping them to the largest magnitude."""
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def nan_to_zero(values: Any, dtype: Any) -> Any:
    """Cast the values clamped to 65504 in magnitude, with 0 in place of NaN."""
    return plain_cast(np.nan_to_num(np.clip(values, -65504, 65504)), dtype)


def penalty_forgotten(gradient: Any, penalty: Any) -> Any:
    """Return the gradient without the penalty."""
    return gradient


def penalty_on_named_rows(right: Any) -> Any:
    """Make ``add_penalty`` leave out the rows that a sparse gradient does not name."""

    def add(gradient: Any, penalty: Any) -> Any:
        if not isinstance(gradient, Rows):
            return right(gradient, penalty)
        mask = np.zeros(penalty.shape, penalty.dtype)
        mask[gradient.indices] = 1
        return right(gradient, penalty * mask)

    return add


def rounded_to_half(master: Any) -> Any:
    """Make ``make_master`` return the variable, so that its dtype rounds updates."""
    return lambda variable: variable


def scaled_in_float32(gradient: Any, factor: Any) -> Any:
    """Return the gradient in float32 times the factor; None stays None."""
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=scaled_in_float32(gradient.values, factor))
    return gradient.astype(np.float32) * factor


def one_more_step(right: Any) -> Any:
    """Make ``move_scale`` move the loss scale twice."""

    def move(self: Any, verdict: Any) -> None:
        right(self, verdict)
        right(self, verdict)

    return move


def only_nan(right: Any) -> Any:
    """Make ``judge`` treat infinite gradients as finite."""

    def judge(self: Any, pairs: Any, *rest: Any) -> Any:
        values = [np.asarray(getattr(g, "values", g), float) for g, _ in pairs]
        has_nan = any(bool(np.isnan(v).any()) for v in values)
        return right(self, pairs, *rest)._replace(finite=not has_nan)

    return judge


def never_skipped(verdict: Any) -> Any:
    """Return the verdict with ``finite`` set, so that no step is skipped."""
    return verdict._replace(finite=True)


def mutants() -> Sequence[Mutant]:
    """Return the mutants of the masters."""
    from lockstep import reference

    default = instead(reference.MixedPrecisionOptimizerWrapper)
    module, wrapper = (
        "masters.mixed_precision",
        "masters.mixed_precision.MixedPrecisionOptimizerWrapper",
    )
    words, cast = f"{module}.words", f"{module}.saturating_cast"
    rows = f"{module}.refusals"
    penalty, scale = f"{module}.add_penalty", f"{module}.scale_in_dtype"
    half = after(lambda v: type(v)(v.name, v.value, np.float16))
    tenth = after(lambda number: None if number is None else number * 10)
    return (
        Mutant(cast, "not clamped", instead(plain_cast), MASTERS),
        Mutant(cast, "NaN becomes 0", instead(nan_to_zero), MASTERS),
        Mutant(penalty, "forgotten", instead(penalty_forgotten), MASTERS),
        Mutant(penalty, "on named rows only", penalty_on_named_rows, MASTERS),
        Mutant(f"{module}.make_master", "float16", half, MASTERS),
        Mutant(
            f"{module}.make_master", "the variable itself", rounded_to_half, MASTERS
        ),
        Mutant(f"{words}.has_master", "nothing has one", constant(False), MASTERS),
        Mutant(f"{words}.master_name", "its own name", instead(str), MASTERS),
        Mutant(scale, "in float32", instead(scaled_in_float32), MASTERS),
        Mutant(f"{words}.scale_number", "ten times", tenth, MASTERS),
        Mutant(f"{rows}.UNUSABLE", "no error", of_class(Warning), MASTERS),
        Mutant(f"{rows}.ABSENT_HALF", "no error", of_class(Warning), MASTERS),
        Mutant(f"{wrapper}.copy_back", "forgotten", constant(None), MASTERS),
        Mutant(f"{wrapper}.move_scale", "twice", one_more_step, MASTERS),
        Mutant(f"{wrapper}.judge", "infinity is fine", only_nan, MASTERS),
        Mutant(f"{wrapper}.judge", "never skips", after(never_skipped), MASTERS),
        Mutant(
            "optimizers.classes.advance", "step not counted", constant(None), MASTERS
        ),
        Mutant("strict.MixedPrecisionOptimizerWrapper", "not strict", default, MASTERS),
    )
