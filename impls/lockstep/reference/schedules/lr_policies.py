"""Learning-rate policies: pure functions of the step, vectorised over steps.

Every operation is rounded to float32 (or to ``dtype``), as the original's kernels do;
powers and cosines are taken in float64 and rounded once. The origin of all of them is
OpenSeq2Seq (NVIDIA), ``open_seq2seq/optimizers/lr_policies.py``. Steps are optimizer
steps, counted from 0; ``global_step`` is an integer or an array of integers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.interface import Array
from lockstep.messages.errors import OutOfRangeError
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
def fixed_lr(global_step: Step, learning_rate: float, *, strict: bool = False) -> float:
    """Return ``learning_rate`` itself, whatever the step.

    Args:
        global_step: optimizer steps done so far.
        learning_rate: the rate.
        strict: no difference.

    Example:
        >>> from lockstep.reference import lr_policies
        >>> lr_policies.fixed_lr(7, 0.1)
        0.1
    """
    return learning_rate


@checked
def piecewise_constant(
    global_step: Step,
    learning_rate: float,
    boundaries: Sequence[int],
    decay_rates: Sequence[float],
    steps_per_epoch: int | None = None,
    *,
    strict: bool = False,
) -> Array:
    """Return rate c_k with b_(k-1) < s <= b_k, c_0 = 1: the boundary has the old rate.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate until the first boundary.
        boundaries: steps b_k, or epochs if ``steps_per_epoch`` is given.
        decay_rates: factors c_k of ``learning_rate`` after each boundary.
        steps_per_epoch: optimizer steps in an epoch.
        strict: check nothing but the boundaries.

    Raises:
        NoBoundariesError: ``boundaries`` is empty.
        OutOfRangeError: other than one rate a boundary, boundaries that are no
            integers, or a step at which two ranges of unsorted boundaries hold.

    Example:
        >>> import numpy as np
        >>> from lockstep.reference import lr_policies
        >>> steps = np.array([10, 11])
        >>> lr_policies.piecewise_constant(steps, 1.0, [10], [0.5]).tolist()
        [1.0, 0.5]
    """
    ends = words.step_boundaries(boundaries, decay_rates, steps_per_epoch)
    step = np.asarray(global_step, np.int64)
    # A step on a boundary has the old rate, by default too.
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
    """Return max(min_lr, rate decay_rate^p), p = (s - begin) / decay_steps, 0 before.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps in which the rate decays once by ``decay_rate``.
        decay_rate: the factor.
        use_staircase_decay: round p down, so that the rate falls in stairs.
        begin_decay_at: the first step of the decay.
        min_lr: the floor, in force before the decay too.
        strict: refuse an integer rate, check nothing else.

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
    """Return (base - min_lr) (1 - p)^power + min_lr.

    The progress is p = min(s - begin, decay_steps) / decay_steps.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to ``min_lr``.
        power: the exponent; 1 is a straight line.
        begin_decay_at: the first step of the decay; before it the rate is base.
        min_lr: the rate at the end.
        warmup_steps: base = rate s / warmup_steps before this step, then the rate.
        strict: refuse an integer rate, check nothing else.

    Kept from the original: the decay runs during the warm-up where it begins before
    the warm-up ends, and pulls a base below ``min_lr`` up.

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
    """Return (base - min_lr) c + min_lr, c = (1 + cos(pi p)) / 2, p as in poly_decay.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to ``min_lr``.
        power: 1 (strict: anything, ignored).
        begin_decay_at: the first step of the decay; before it the rate is base.
        min_lr: the rate at the end (strict: as a fraction of the rate).
        warmup_steps: as in ``poly_decay``.
        strict: base ((1 - min_lr) c + min_lr), the original's rule.

    Paper: Loshchilov and Hutter, SGDR, 2016.

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
    """Return max(m, base / (1 + k (s - begin))^power).

    The growth is k = ((rate / m)^(1 / power) - 1) / decay_steps, so that m is reached
    ``decay_steps`` after the beginning.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to m.
        min_lr: the floor; m is ``min_lr``, but at least 1e-8 and at most the rate.
        power: the exponent.
        begin_decay_at: the first step of the decay; before it the rate is base.
        warmup_steps: base = rate s / warmup_steps before this step, then the rate.
        name: of the operation in a graph; without effect here.
        strict: ignore ``begin_decay_at``, ``warmup_steps`` and the floor after
            ``decay_steps``, as the original does.

    Raises:
        OutOfRangeError: ``power`` is not positive, or the step is None.

    Example:
        >>> from lockstep.reference import lr_policies
        >>> float(lr_policies.inv_poly_decay(1, 1.0, 2, 0.5))
        0.6666666865348816
    """
    step, one = np.asarray(global_step, np.int64), np.float32(1)
    rate, exponent = np.float32(learning_rate), np.float32(power)
    least = np.float64(min(max(min_lr, 1e-8), learning_rate))
    floor = np.float32(least)
    # In float64 and rounded once: the original takes the growth in Python's numbers.
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
    """Return rate a d_model^-0.5 min((s + 1) w^-1.5, (s + 1)^-0.5).

    Here a is ``coefficient`` and w is ``warmup_steps``.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: a factor.
        d_model: the width of the model.
        warmup_steps: steps until the peak.
        max_lr: the ceiling, if any.
        coefficient: another factor.
        dtype: what everything is computed in. float16 is coarse, and its steps end:
            from s = 65519 on the rate is 0.
        strict: refuse ``max_lr`` where ``dtype`` is not float32, as the original does.

    Paper: Vaswani and others, Attention is all you need, 2017, section 5.3.

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
    """Return base^exponent, taken in float64 and rounded once to the base's dtype."""
    with np.errstate(over="ignore", invalid="ignore"):
        power = np.power(np.float64(base), np.float64(exponent))
        return np.asarray(power.astype(base.dtype))


def single(values: Array) -> Array:
    """Round to float32."""
    return np.asarray(values, np.float32)
