"""Mutants of loss scaling."""

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
    of_class,
    replaced,
)
from lockstep.interface import Rows

__all__ = ["mutants"]

FIXED, DYNAMIC = ("loss_scale_fixed",), ("loss_scale_dynamic",)
BOTH = (*FIXED, *DYNAMIC)


def one_percent(gradient: Any) -> Any:
    """Return a gradient times 1.01, in its dtype; None stays None."""
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=one_percent(gradient.values))
    return np.asarray(gradient * gradient.dtype.type(1.01))


def never_flushed(right: Any) -> Any:
    """Make ``times`` keep subnormals."""
    return lambda gradient, factor, flush=False: right(gradient, factor)


def absent_is_not_finite(right: Any) -> Any:
    """Make ``is_finite`` return False for an absent gradient."""
    return lambda gradient, strict=False: gradient is not None and right(gradient)


def infinity_is_finite(right: Any) -> Any:
    """Make ``is_finite`` return False for NaN only."""

    def is_finite(gradient: Any, strict: bool = False) -> bool:
        values = getattr(gradient, "values", gradient)
        return values is None or not bool(np.any(np.isnan(values)))

    return is_finite


def one_step_later(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with a growth period that is one step longer."""
    return policy._replace(increment_period=policy.increment_period + 1), *rest


def good_steps_kept(right: Any) -> Any:
    """Make an overflow keep the count of finite steps."""

    def step(policy: Any, state: Any, finite: bool) -> Any:
        moved = right(policy, state, finite)
        return moved if finite else moved._replace(good_steps=state.good_steps)

    return step


def factor_doubled(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with twice the multiplier."""
    return policy._replace(multiplier=policy.multiplier * 2), *rest


def infinite_too(right: Any) -> Any:
    """Make the scale grow beyond the largest float32, to infinity."""

    def step(policy: Any, state: Any, finite: bool) -> Any:
        moved = right(policy, state, finite)
        with np.errstate(all="ignore"):
            grown = state.loss_scale * np.float32(policy.multiplier)
        capped = finite and moved.good_steps == 0 and not np.isfinite(grown)
        return moved._replace(loss_scale=grown) if capped else moved

    return step


def mutants() -> Sequence[Mutant]:
    """Return the mutants of the loss scales and their optimizer."""
    return (*_finite_check_mutants(), *_scale_mutants())


def _finite_check_mutants() -> Sequence[Mutant]:
    """Return the mutants of the scaled gradients and of the finite check."""
    times, finite = "scaling.loss_scale_optimizer.times", "scaling.skipping.is_finite"
    updated = "scaling.loss_scale.is_finite"
    return (
        Mutant(times, "1 % too large", after(one_percent), BOTH),
        Mutant(times, "subnormals kept", never_flushed, FIXED),
        Mutant(finite, "everything is finite", constant(True), DYNAMIC),
        Mutant(finite, "nothing is finite", constant(False), DYNAMIC),
        Mutant(finite, "infinity is finite", infinity_is_finite, DYNAMIC),
        Mutant(finite, "absent is not", absent_is_not_finite, DYNAMIC),
        Mutant(updated, "everything is finite", constant(True), DYNAMIC),
        Mutant(updated, "infinity is finite", infinity_is_finite, DYNAMIC),
        Mutant(updated, "absent is not", absent_is_not_finite, DYNAMIC),
    )


def _scale_mutants() -> Sequence[Mutant]:
    """Return the mutants of the scales' numbers and of the errors."""
    from lockstep import reference

    default = instead(reference.MixedPrecisionLossScaleOptimizer)
    step, start = "scaling.loss_scale.step_dynamic", "scaling.loss_scale.start_dynamic"
    sums, advance = "scaling.loss_scale.sum_duplicates", "optimizers.classes.advance"
    words = "scaling.loss_scale.words"
    wrapper = "strict.MixedPrecisionLossScaleOptimizer"
    later = before(one_step_later)
    one = instead(lambda identifier, strict=False: reference.FixedLossScale(1.5))
    other = after(lambda config: {**config, "multiplier": 3.0})
    one_more = after(lambda value: value + 1)
    no_floor, floor_two = replaced(floor=0.0), replaced(floor=2.0)
    doubled = after(lambda state: state._replace(loss_scale=state.loss_scale * 2))
    fixed_only = ("loss_scale_fixed",)
    return (
        Mutant(sums, "rows unsummed", instead(lambda rows: rows), DYNAMIC),
        Mutant(advance, "step not counted", constant(None), BOTH),
        Mutant(step, "grows a step later", later, DYNAMIC),
        Mutant(step, "no floor", no_floor, DYNAMIC),
        Mutant(step, "floor 2", floor_two, DYNAMIC),
        Mutant(step, "multiplier doubled", before(factor_doubled), DYNAMIC),
        Mutant(step, "good steps kept", good_steps_kept, DYNAMIC),
        Mutant(step, "grows to infinity", infinite_too, DYNAMIC),
        Mutant(start, "starts at twice", doubled, DYNAMIC),
        Mutant("scaling.loss_scale_optimizer.get", "1.5 for everything", one, FIXED),
        Mutant(f"{words}.fixed_value", "unchecked", instead(lambda v: 1.0), fixed_only),
        Mutant(f"{words}.fixed_value", "one more", one_more, fixed_only),
        Mutant(f"{words}.dynamic_config", "another", other, BOTH),
        Mutant(
            "scaling.loss_scale_optimizer.refusals.HALF_PRECISION",
            "no error",
            of_class(Warning),
            FIXED,
        ),
        Mutant("base.pairs.require_gradients", "unchecked", constant(None), DYNAMIC),
        Mutant(wrapper, "not strict", default, FIXED),
    )
