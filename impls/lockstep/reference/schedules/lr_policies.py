"""Learning-rate policies: pure functions of the step, vectorised over steps.

Every operation is rounded to float32 (or to ``dtype``), as in the original's kernels.
Powers and cosines are computed in float64 and rounded once. All policies come from
OpenSeq2Seq (NVIDIA), ``open_seq2seq/optimizers/lr_policies.py``. Steps are optimizer
steps, counted from 0; ``global_step`` is an integer or an array of integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.docstrings import documented
from lockstep.errors import OutOfRangeError
from lockstep.interface import Array
from lockstep.messages.schedules import lr_policies as words
from lockstep.messages.schedules.lr_policies import checked
from lockstep.quirks import quirks_of

__all__ = [
    "cosine_decay",
    "exp_decay",
    "fixed_lr",
    "inv_poly_decay",
    "piecewise_constant",
    "poly_decay",
    "transformer_policy",
]

Step = int | Array


@checked
@documented
def fixed_lr(global_step: Step, learning_rate: float, *, strict: bool = False) -> float:
    """Keep the rate as it is.

    ...

    Example:
        >>> from lockstep.reference import lr_policies
        >>> lr_policies.fixed_lr(7, 0.1)
        0.1
    """
    return learning_rate


@checked
@documented
def piecewise_constant(
    global_step: Step,
    learning_rate: float,
    boundaries: Sequence[int],
    decay_rates: Sequence[float],
    steps_per_epoch: int | None = None,
    *,
    strict: bool = False,
) -> Array:
    """Change the rate at some steps.

    ...

    Example:
        >>> import numpy as np
        >>> from lockstep.reference import lr_policies
        >>> steps = np.array([10, 11])
        >>> lr_policies.piecewise_constant(steps, 1.0, [10], [0.5]).tolist()
        [1.0, 0.5]
    """
    ends = words.step_boundaries(boundaries, decay_rates, steps_per_epoch)
    step = np.asarray(global_step, np.int64)
    # A step on a boundary has the old rate, with and without strict.
    holds = [step <= ends[0]]
    holds += [(low < step) & (step <= high) for low, high in itertools.pairwise(ends)]
    holds += [step > ends[-1]]
    if np.any(np.sum(holds, axis=0) != 1):
        raise OutOfRangeError(words.overlapping_ranges(ends))
    rate = np.zeros(step.shape, np.float32)
    for inside, factor in zip(holds, [1.0, *decay_rates], strict=True):
        rate = np.where(inside, np.float32(learning_rate * factor), rate)
    return rate[()]


@checked
@documented
def exp_decay(
    global_step: Step,
    learning_rate: float,
    decay_steps: float,
    decay_rate: float,
    use_staircase_decay: bool,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    *,
    strict: bool = False,
) -> Array:
    """Decay the rate exponentially.

    ...

    Example:
        >>> from lockstep.reference import lr_policies
        >>> float(lr_policies.exp_decay(20, 1.0, 10, 0.5, False))
        0.25
    """
    step, rate = np.asarray(global_step, np.int64), np.float32(learning_rate)
    progress = single(step - begin_decay_at) / np.float32(decay_steps)
    if use_staircase_decay:
        progress = np.floor(progress)
    decayed = rate * power_of(np.float32(decay_rate), progress)
    chosen = np.where(step < begin_decay_at, rate, decayed)
    return np.maximum(np.float32(min_lr), chosen)[()]


@checked
@documented
def poly_decay(
    global_step: Step,
    learning_rate: float,
    decay_steps: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    warmup_steps: float = 0,
    *,
    strict: bool = False,
) -> Array:
    """Decay the rate along a polynomial.

    ...

    Example:
        >>> from lockstep.reference import lr_policies
        >>> float(lr_policies.poly_decay(5, 1.0, 10))
        0.5
    """
    step = np.asarray(global_step, np.int64)
    base, floor = warmed_up(step, learning_rate, warmup_steps), np.float32(min_lr)
    progress = decay_progress(step, decay_steps, begin_decay_at)
    remaining = power_of(np.float32(1) - progress, np.float32(power))
    decayed = (base - floor) * remaining + floor
    return np.where(step < begin_decay_at, base, decayed)[()]


@checked
@documented
def cosine_decay(
    global_step: Step,
    learning_rate: float,
    decay_steps: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    warmup_steps: float = 0,
    *,
    strict: bool = False,
) -> Array:
    """Decay the rate along half a cosine.

    ...

    Example:
        >>> from lockstep.reference import lr_policies
        >>> float(lr_policies.cosine_decay(5, 1.0, 10, min_lr=0.5))
        0.75
    """
    step = np.asarray(global_step, np.int64)
    base, floor = warmed_up(step, learning_rate, warmup_steps), np.float32(min_lr)
    progress = decay_progress(step, decay_steps, begin_decay_at)
    wave = single(np.cos(np.float64(np.float32(np.pi) * progress)))
    cosine = np.float32(0.5) * (np.float32(1) + wave)
    if quirks_of(strict).policies_cosine:
        decayed = base * (np.float32(1 - min_lr) * cosine + floor)
    else:
        decayed = (base - floor) * cosine + floor
    return np.where(step < begin_decay_at, base, decayed)[()]


@checked
@documented
def inv_poly_decay(
    global_step: Step,
    learning_rate: float,
    decay_steps: float,
    min_lr: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    warmup_steps: float = 0,
    name: str = "learning_rate",
    *,
    strict: bool = False,
) -> Array:
    """Decay the rate as an inverse power of the step.

    ...

    Example:
        >>> from lockstep.reference import lr_policies
        >>> float(lr_policies.inv_poly_decay(1, 1.0, 2, 0.5))
        0.6666666865348816
    """
    step, one = np.asarray(global_step, np.int64), np.float32(1)
    rate, exponent = np.float32(learning_rate), np.float32(power)
    least = np.float64(min(max(min_lr, 1e-8), learning_rate))
    floor = np.float32(least)
    # In float64 and rounded once, because the original uses Python floats here.
    with np.errstate(invalid="ignore"):
        largest = power_of(learning_rate / least, 1 / power)
        growth = single((largest - 1) / decay_steps)
    if quirks_of(strict).policies_inverse:
        return (rate / power_of(one + growth * single(step), exponent))[()]
    base = warmed_up(step, learning_rate, warmup_steps)
    elapsed = single(np.maximum(step - begin_decay_at, 0))
    decayed = base / power_of(one + growth * elapsed, exponent)
    return np.where(step < begin_decay_at, base, np.maximum(decayed, floor))[()]


@checked
@documented
def transformer_policy(
    global_step: Step,
    learning_rate: float,
    d_model: float,
    warmup_steps: float,
    max_lr: float | None = None,
    coefficient: float = 1.0,
    dtype: npt.DTypeLike = "float32",
    *,
    strict: bool = False,
) -> Array:
    """Raise the rate linearly, then lower it with the root of the step.

    ...

    Example:
        >>> from lockstep.reference import lr_policies
        >>> float(lr_policies.transformer_policy(3, 2.0, 4, 4))
        0.5
    """
    if quirks_of(strict).policies_float16:
        words.refuse_limit_of_another_dtype(max_lr, dtype)
    kind: Any = np.dtype(dtype).type
    with np.errstate(over="ignore"):
        step = np.asarray(global_step, np.int64).astype(kind) + kind(1)
        rising = step * power_of(kind(warmup_steps), kind(-1.5))
        shape = np.minimum(rising, power_of(step, kind(-0.5)))
        rate = kind(coefficient * d_model**-0.5) * shape * kind(learning_rate)
        limited = rate if max_lr is None else np.minimum(kind(max_lr), rate)
        return np.asarray(limited)[()]


def warmed_up(step: Array, learning_rate: float, warmup_steps: float) -> Array:
    """Return rate s / warmup_steps before ``warmup_steps``, then the rate."""
    rate = np.float32(learning_rate)
    if warmup_steps <= 0:
        return np.full(step.shape, rate)
    rising = rate * single(step) / np.float32(warmup_steps)
    return np.where(step < warmup_steps, rising, rate)


def decay_progress(step: Array, decay_steps: float, begin_decay_at: int) -> Array:
    """Return min(s - begin, decay_steps) / decay_steps."""
    length = np.float32(decay_steps)
    progress: Array = np.minimum(single(step - begin_decay_at), length) / length
    return progress


def power_of(base: Any, exponent: Any) -> Array:
    """Return base^exponent, computed in float64 and rounded to the base's dtype."""
    with np.errstate(over="ignore", invalid="ignore"):
        power = np.power(np.float64(base), np.float64(exponent))
        return np.asarray(power.astype(base.dtype))


def single(values: Array) -> Array:
    """Round to float32."""
    return np.asarray(values, np.float32)
