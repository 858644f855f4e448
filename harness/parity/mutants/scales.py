"""Mutants of loss scaling: see :mod:`harness.parity.mutants.all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.parity.mutants.mutant import Mutant, after, before, constant, instead
from lockstep.interface import Array, Rows

__all__ = ["scale_mutants"]

FIXED, DYNAMIC = ("loss_scale_fixed",), ("loss_scale_dynamic",)
BOTH = (*FIXED, *DYNAMIC)
BACKOFF, LOGMAX = ("auto_loss_scaler_backoff",), ("auto_loss_scaler_logmax",)
AUTO = (*BACKOFF, *LOGMAX)


def one_percent(gradient: Any) -> Any:
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=one_percent(gradient.values))
    return np.asarray(gradient * gradient.dtype.type(1.01))


def never_flushed(right: Any) -> Any:
    return lambda gradient, factor, flush=False: right(gradient, factor)


def absent_is_not_finite(right: Any) -> Any:
    return lambda gradient, strict=False: gradient is not None and right(gradient)


def infinity_is_finite(right: Any) -> Any:
    def is_finite(gradient: Any, strict: bool = False) -> bool:
        values = getattr(gradient, "values", gradient)
        return values is None or not bool(np.any(np.isnan(values)))

    return is_finite


def replaced(**changes: Any) -> Any:
    """Change entries of the policy, the first argument of a rule."""
    return before(lambda policy, *rest: (policy._replace(**changes), *rest))


def one_step_later(policy: Any, *rest: Any) -> tuple[Any, ...]:
    return policy._replace(increment_period=policy.increment_period + 1), *rest


def good_steps_kept(right: Any) -> Any:
    def step(policy: Any, state: Any, finite: bool) -> Any:
        moved = right(policy, state, finite)
        return moved if finite else moved._replace(good_steps=state.good_steps)

    return step


def factor_doubled(policy: Any, *rest: Any) -> tuple[Any, ...]:
    return policy._replace(multiplier=policy.multiplier * 2), *rest


def infinite_too(right: Any) -> Any:
    def step(policy: Any, state: Any, finite: bool) -> Any:
        moved = right(policy, state, finite)
        with np.errstate(all="ignore"):
            grown = state.loss_scale * np.float32(policy.multiplier)
        capped = finite and moved.good_steps == 0 and not np.isfinite(grown)
        return moved._replace(loss_scale=grown) if capped else moved

    return step


def last_not_kept(right: Any) -> Any:
    def step(policy: Any, state: Any, *rest: Any) -> Any:
        last = state.last_overflow_iteration
        return right(policy, state, *rest)._replace(last_overflow_iteration=last)

    return step


def read_after_increment(policy: Any, state: Any, *rest: Any) -> tuple[Any, ...]:
    return policy, state._replace(iteration=state.iteration + 1), *rest


def flag_ignored(policy: Any, state: Any, has_nan: bool, amax: Any) -> Any:
    return policy, state, False, amax


def only_positive(policy: Any, state: Any, has_nan: bool, amax: Any) -> Any:
    return policy, state, has_nan, 1.0 if np.isneginf(amax) else amax


def upper_bound_wins(scale: Any, policy: Any) -> Any:
    at_least = np.maximum(scale, np.float32(policy.scale_min))
    return np.float32(np.minimum(at_least, np.float32(policy.scale_max)))


def window_doubled(policy: Any, *rest: Any) -> tuple[Any, ...]:
    return policy._replace(step_window=policy.step_window * 2), *rest


def swapped_betas(policy: Any, *rest: Any) -> tuple[Any, ...]:
    return policy._replace(beta1=policy.beta2, beta2=policy.beta1), *rest


def twice_the_deviation(policy: Any, *rest: Any) -> tuple[Any, ...]:
    return policy._replace(overflow_std_dev=policy.overflow_std_dev + 1), *rest


def zero_is_small(policy: Any, has_nan: bool, amax: Any) -> tuple[Any, ...]:
    return policy, has_nan, max(amax, 1e-30)


def magnitudes(pairs: Any) -> list[Array]:
    return [
        np.asarray(getattr(g, "values", g)).ravel() for g, _ in pairs if g is not None
    ]


def no_nan(right: Any) -> Any:
    return lambda pairs: (np.bool_(False), right(pairs)[1])


def one_sided(right: Any) -> Any:
    def check(pairs: Any) -> Any:
        found = [values.max(initial=-np.inf) for values in magnitudes(pairs)]
        amax = np.asarray(max(found, default=-np.inf))
        return right(pairs)[0], amax.astype(right(pairs)[1].dtype)

    return check


def nan_kept(right: Any) -> Any:
    def check(pairs: Any) -> Any:
        has_nan, amax = right(pairs)
        return has_nan, np.asarray(np.nan if has_nan else amax, amax.dtype)

    return check


def absent_is_zero(right: Any) -> Any:
    def check(pairs: Any) -> Any:
        has_nan, amax = right(pairs)
        return has_nan, np.maximum(amax, amax.dtype.type(0))

    return check


def sums_rows(right: Any) -> Any:
    def check(pairs: Any) -> Any:
        from lockstep.reference.tensors.rows import sum_duplicates

        with np.errstate(all="ignore"):
            summed = [
                (sum_duplicates(g) if isinstance(g, Rows) else g, v) for g, v in pairs
            ]
        return right(summed)

    return check


def always_single(right: Any) -> Any:
    def check(pairs: Any) -> Any:
        has_nan, amax = right(pairs)
        return has_nan, amax.astype(np.float32) + np.float32(1)

    return check


def as_written(algorithm: Any) -> str:
    if algorithm not in ("Backoff", "LogMax"):
        raise KeyError(algorithm)
    return str(algorithm).lower()


def any_params(right: Any) -> Any:
    return lambda algorithm, params, strict=False: right(
        algorithm, {k: float(v) for k, v in params.items() if k == "scale"}, strict
    )


def _of_the_scales() -> Sequence[Mutant]:
    from lockstep import reference

    default = instead(reference.MixedPrecisionLossScaleOptimizer)
    times, finite = "scaling.loss_scale_optimizer.times", "scaling.skipping.is_finite"
    step, start = "scaling.loss_scale.step_dynamic", "scaling.loss_scale.start_dynamic"
    sums, advance = "scaling.loss_scale.sum_duplicates", "optimizers.classes.advance"
    words, updated = "scaling.loss_scale.words", "scaling.loss_scale.is_finite"
    wrapper = "strict.MixedPrecisionLossScaleOptimizer"
    later = before(one_step_later)
    one = instead(lambda identifier, strict=False: reference.FixedLossScale(1.5))
    other = after(lambda config: {**config, "multiplier": 3.0})
    one_more = after(lambda value: value + 1)
    no_floor, floor_two = replaced(floor=0.0), replaced(floor=2.0)
    doubled = after(lambda state: state._replace(loss_scale=state.loss_scale * 2))
    fixed_only = ("loss_scale_fixed",)
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
            "scaling.loss_scale_optimizer.words.half_precision",
            "no error",
            instead(Warning),
            FIXED,
        ),
        Mutant("base.pairs.require_gradients", "unchecked", constant(None), DYNAMIC),
        Mutant(wrapper, "not strict", default, FIXED),
    )


def _of_the_scaler() -> Sequence[Mutant]:
    from lockstep import reference

    default = instead(reference.AutomaticLossScaler)
    backoff, logmax = (
        "scaling.automatic_scaler.step_backoff",
        "scaling.automatic_scaler.step_logmax",
    )
    check = "scaling.automatic_scaler.AutomaticLossScaler.check_grads"
    words, log = "scaling.automatic_scaler.words", "scaling.logmax.log_amax"
    dtypes = f"{words}.check_check_grads_dtypes"
    tiny = after(lambda state: state._replace(loss_scale=np.float32(2.0)))
    ever = replaced(step_window=1)
    late = before(read_after_increment)
    guarded, wide = replaced(guarded=True), before(twice_the_deviation)
    return (
        Mutant("strict.AutomaticLossScaler", "not strict", default, AUTO),
        Mutant(f"{words}.algorithm_name", "as written", instead(as_written), AUTO),
        Mutant(f"{words}.automatic_policy", "any parameters", any_params, AUTO),
        Mutant("scaling.automatic_scaler.start_backoff", "starts at 2", tiny, BACKOFF),
        Mutant(backoff, "grows at each step", ever, BACKOFF),
        Mutant(backoff, "window doubled", before(window_doubled), BACKOFF),
        Mutant(backoff, "read after the increment", late, BACKOFF),
        Mutant(backoff, "last overflow not kept", last_not_kept, BACKOFF),
        Mutant(backoff, "flag ignored", before(flag_ignored), BACKOFF),
        Mutant(backoff, "-inf is small", before(only_positive), BACKOFF),
        Mutant(backoff, "NaN overflows", replaced(nan_overflows=True), BACKOFF),
        Mutant(
            "scaling.backoff.clip",
            "upper bound wins",
            instead(upper_bound_wins),
            BACKOFF,
        ),
        Mutant(check, "no NaN", no_nan, BACKOFF),
        Mutant(check, "one-sided", one_sided, BACKOFF),
        Mutant(check, "NaN kept", nan_kept, BACKOFF),
        Mutant(check, "nothing is zero", absent_is_zero, BACKOFF),
        Mutant(check, "duplicate rows summed", sums_rows, BACKOFF),
        Mutant(check, "float32, and one more", always_single, BACKOFF),
        Mutant(dtypes, "unchecked", constant(None), BACKOFF),
        Mutant(logmax, "betas swapped", before(swapped_betas), LOGMAX),
        Mutant(logmax, "one deviation more", wide, LOGMAX),
        Mutant(logmax, "flag ignored", before(flag_ignored), LOGMAX),
        Mutant(logmax, "guarded", guarded, LOGMAX),
        Mutant(logmax, "target 8", replaced(target=8.0), LOGMAX),
        Mutant(logmax, "no lower bound", replaced(scale_min=0.0), LOGMAX),
        Mutant(log, "zero is small", before(zero_is_small), LOGMAX),
    )


def scale_mutants() -> Sequence[Mutant]:
    """Return the mistakes, the right objects being there to be replaced."""
    return (*_of_the_scales(), *_of_the_scaler())
