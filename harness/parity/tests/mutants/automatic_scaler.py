"""Mutants of the automatic loss scaler."""

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
    replaced,
)
from lockstep.interface import Array, Rows

__all__ = ["mutants"]

BACKOFF, LOGMAX = ("auto_loss_scaler_backoff",), ("auto_loss_scaler_logmax",)
AUTO = (*BACKOFF, *LOGMAX)


def last_not_kept(right: Any) -> Any:
    """Make an overflow leave ``last_overflow_iteration`` as it was."""

    def step(policy: Any, state: Any, *rest: Any) -> Any:
        last = state.last_overflow_iteration
        return right(policy, state, *rest)._replace(last_overflow_iteration=last)

    return step


def read_after_increment(policy: Any, state: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with an iteration that is one too high."""
    return policy, state._replace(iteration=state.iteration + 1), *rest


def flag_ignored(policy: Any, state: Any, has_nan: bool, amax: Any) -> Any:
    """Return the arguments with ``has_nan`` False."""
    return policy, state, False, amax


def only_positive(policy: Any, state: Any, has_nan: bool, amax: Any) -> Any:
    """Return the arguments with 1.0 in place of an ``amax`` of -inf."""
    return policy, state, has_nan, 1.0 if np.isneginf(amax) else amax


def upper_bound_wins(scale: Any, policy: Any) -> Any:
    """Clip the scale so that ``scale_max`` wins over a larger ``scale_min``."""
    at_least = np.maximum(scale, np.float32(policy.scale_min))
    return np.float32(np.minimum(at_least, np.float32(policy.scale_max)))


def window_doubled(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with twice the step window."""
    return policy._replace(step_window=policy.step_window * 2), *rest


def swapped_betas(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with ``beta1`` and ``beta2`` swapped."""
    return policy._replace(beta1=policy.beta2, beta2=policy.beta1), *rest


def twice_the_deviation(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with a cutoff one standard deviation higher."""
    return policy._replace(overflow_std_dev=policy.overflow_std_dev + 1), *rest


def zero_is_small(policy: Any, has_nan: bool, amax: Any) -> tuple[Any, ...]:
    """Return the arguments with an ``amax`` of at least 1e-30."""
    return policy, has_nan, max(amax, 1e-30)


def magnitudes(pairs: Any) -> list[Array]:
    """Return the elements of each present gradient: [n] each, with signs."""
    return [
        np.asarray(getattr(g, "values", g)).ravel() for g, _ in pairs if g is not None
    ]


def no_nan(right: Any) -> Any:
    """Make ``check_grads`` return ``has_nan`` False."""
    return lambda pairs: (np.bool_(False), right(pairs)[1])


def one_sided(right: Any) -> Any:
    """Make ``check_grads`` return the largest element, not the largest magnitude."""

    def check(pairs: Any) -> Any:
        largest = [values.max(initial=-np.inf) for values in magnitudes(pairs)]
        amax = np.asarray(max(largest, default=-np.inf))
        return right(pairs)[0], amax.astype(right(pairs)[1].dtype)

    return check


def nan_kept(right: Any) -> Any:
    """Make ``check_grads`` return an ``amax`` of NaN if there is a NaN."""

    def check(pairs: Any) -> Any:
        has_nan, amax = right(pairs)
        return has_nan, np.asarray(np.nan if has_nan else amax, amax.dtype)

    return check


def absent_is_zero(right: Any) -> Any:
    """Make ``check_grads`` return an ``amax`` of at least 0."""

    def check(pairs: Any) -> Any:
        has_nan, amax = right(pairs)
        return has_nan, np.maximum(amax, amax.dtype.type(0))

    return check


def sums_rows(right: Any) -> Any:
    """Make ``check_grads`` sum duplicate rows first."""

    def check(pairs: Any) -> Any:
        from lockstep.reference.tensors.rows import sum_duplicates

        with np.errstate(all="ignore"):
            summed = [
                (sum_duplicates(g) if isinstance(g, Rows) else g, v) for g, v in pairs
            ]
        return right(summed)

    return check


def always_single(right: Any) -> Any:
    """Make ``check_grads`` return ``amax`` plus 1, in float32."""

    def check(pairs: Any) -> Any:
        has_nan, amax = right(pairs)
        return has_nan, amax.astype(np.float32) + np.float32(1)

    return check


def as_written(algorithm: Any) -> str:
    """Return a name that is spelt exactly, in lower case; else raise KeyError."""
    if algorithm not in ("Backoff", "LogMax"):
        raise KeyError(algorithm)
    return str(algorithm).lower()


def any_params(right: Any) -> Any:
    """Make the policy accept any parameter and use ``scale`` alone."""
    return lambda algorithm, params, strict=False: right(
        algorithm, {k: float(v) for k, v in params.items() if k == "scale"}, strict
    )


def mutants() -> Sequence[Mutant]:
    """Return the mutants of the automatic scaler, Backoff and LogMax."""
    return (*_backoff_mutants(), *_logmax_mutants())


def _backoff_mutants() -> Sequence[Mutant]:
    """Return the mutants of the arguments, of Backoff and of ``check_grads``."""
    from lockstep import reference

    default = instead(reference.AutomaticLossScaler)
    backoff = "scaling.automatic_scaler.step_backoff"
    check = "scaling.automatic_scaler.AutomaticLossScaler.check_grads"
    words = "scaling.automatic_scaler.words"
    dtypes = f"{words}.check_check_grads_dtypes"
    tiny = after(lambda state: state._replace(loss_scale=np.float32(2.0)))
    ever = replaced(step_window=1)
    late = before(read_after_increment)
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
    )


def _logmax_mutants() -> Sequence[Mutant]:
    """Return the mutants of LogMax."""
    logmax = "scaling.automatic_scaler.step_logmax"
    log = "scaling.logmax.log_amax"
    guarded, wide = replaced(guarded=True), before(twice_the_deviation)
    return (
        Mutant(logmax, "betas swapped", before(swapped_betas), LOGMAX),
        Mutant(logmax, "one deviation more", wide, LOGMAX),
        Mutant(logmax, "flag ignored", before(flag_ignored), LOGMAX),
        Mutant(logmax, "guarded", guarded, LOGMAX),
        Mutant(logmax, "target 8", replaced(target=8.0), LOGMAX),
        Mutant(logmax, "no lower bound", replaced(scale_min=0.0), LOGMAX),
        Mutant(log, "zero is small", before(zero_is_small), LOGMAX),
    )
