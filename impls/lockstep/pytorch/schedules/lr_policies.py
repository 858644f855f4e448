"""Learning-rate policies: a plain step gives a number, a tensor step a tensor.

For an integer step they return a Python float with a float32 value. For a 0-d integer
tensor they return a 0-d tensor on the same device, without a host sync, except that
``piecewise_constant`` checks boundaries that are not in order. ``lr=`` is accepted for
``learning_rate=``. The scheduler :class:`lockstep.pytorch.PolicyLR` writes their rates
into an optimizer. All policies come from OpenSeq2Seq (NVIDIA),
``open_seq2seq/optimizers/lr_policies.py``. Steps are optimizer steps, counted from 0.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.docstrings import documented
from lockstep.errors import OutOfRangeError
from lockstep.messages.schedules import lr_policies as words
from lockstep.pytorch.tensors.scalars import (
    Number,
    choose,
    cosine,
    floor,
    larger,
    power_of,
    rounded,
    smaller,
)
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

PI = rounded(math.pi)
checked = functools.partial(words.checked, arrays=False, short=True)

Step = int | Tensor


@checked
@documented
def fixed_lr(global_step: Step, learning_rate: float, *, strict: bool = False) -> float:
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
) -> Number:
    ends = words.step_boundaries(boundaries, decay_rates, steps_per_epoch)
    step = global_step
    # A step on a boundary has the old rate, with and without strict.
    holds = [step <= ends[0]]
    holds += [(step > low) & (step <= high) for low, high in itertools.pairwise(ends)]
    holds += [step > ends[-1]]
    if not words.rises(ends):
        check_one_holds(sum(holds), words.overlapping_ranges(ends))
    rate: Number = 0.0
    for inside, factor in zip(holds, [1.0, *decay_rates], strict=True):
        rate = choose(inside, rounded(learning_rate * factor), rate)
    return result(rate)


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
) -> Number:
    step, rate = global_step, rounded(learning_rate)
    progress = rounded(rounded(step - begin_decay_at) / rounded(decay_steps))
    if use_staircase_decay:
        progress = floor(progress)
    decayed = rounded(rate * rounded(power_of(rounded(decay_rate), progress)))
    chosen = choose(step < begin_decay_at, rate, decayed)
    return result(larger(rounded(min_lr), chosen))


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
) -> Number:
    step = global_step
    base, least = warmed_up(step, learning_rate, warmup_steps), rounded(min_lr)
    progress = decay_progress(step, decay_steps, begin_decay_at)
    remaining = rounded(power_of(rounded(1.0 - progress), rounded(power)))
    decayed = rounded(rounded(rounded(base - least) * remaining) + least)
    return result(choose(step < begin_decay_at, base, decayed))


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
) -> Number:
    step = global_step
    base, least = warmed_up(step, learning_rate, warmup_steps), rounded(min_lr)
    progress = decay_progress(step, decay_steps, begin_decay_at)
    wave = rounded(cosine(rounded(PI * progress)))
    share = 0.5 * rounded(1.0 + wave)
    if quirks_of(strict).policies_cosine:
        scaled = rounded(rounded(1 - min_lr) * share)
        decayed = rounded(base * rounded(scaled + least))
    else:
        decayed = rounded(rounded(rounded(base - least) * share) + least)
    return result(choose(step < begin_decay_at, base, decayed))


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
) -> Number:
    step, rate, exponent = global_step, rounded(learning_rate), rounded(power)
    least = min(max(min_lr, 1e-8), learning_rate)
    # In float64 and rounded once, because the original uses Python floats here.
    largest = power_of(learning_rate / least if least else math.nan, 1.0 / power)
    growth = rounded((largest - 1.0) / decay_steps)
    if quirks_of(strict).policies_inverse:
        divisor = rounded(1.0 + rounded(growth * rounded(step)))
        return result(rounded(rate / rounded(power_of(divisor, exponent))))
    base = warmed_up(step, learning_rate, warmup_steps)
    elapsed = larger(rounded(step - begin_decay_at), 0.0)
    divisor = rounded(1.0 + rounded(growth * elapsed))
    decayed = rounded(base / rounded(power_of(divisor, exponent)))
    floored = larger(decayed, rounded(least))
    return result(choose(step < begin_decay_at, base, floored))


@checked
@documented
def transformer_policy(
    global_step: Step,
    learning_rate: float,
    d_model: float,
    warmup_steps: float,
    max_lr: float | None = None,
    coefficient: float = 1.0,
    dtype: torch.dtype | str = torch.float32,
    *,
    strict: bool = False,
) -> Number:
    if quirks_of(strict).policies_float16:
        words.refuse_limit_of_another_dtype(max_lr, dtype)
    kind = getattr(torch, dtype) if isinstance(dtype, str) else dtype

    def near(number: Number) -> Number:
        return rounded(number, kind)

    step = near(near(global_step) + 1.0)
    rising = near(step * near(power_of(near(warmup_steps), -1.5)))
    shape = smaller(rising, near(power_of(step, -0.5)))
    scaled = near(near(coefficient * d_model**-0.5) * shape)
    rate = near(scaled * near(learning_rate))
    limited = rate if max_lr is None else smaller(near(max_lr), rate)
    return result(limited, kind)


def warmed_up(step: Step, learning_rate: float, warmup_steps: float) -> Number:
    """Return the rate during a linear warm-up, then the constant rate."""
    rate = rounded(learning_rate)
    if warmup_steps <= 0:
        return rate
    rising = rounded(rounded(rate * rounded(step)) / rounded(warmup_steps))
    return choose(step < warmup_steps, rising, rate)


def decay_progress(step: Step, decay_steps: float, begin_decay_at: int) -> Number:
    """Return the completed fraction of ``decay_steps``, at most 1."""
    length = rounded(decay_steps)
    return rounded(smaller(rounded(step - begin_decay_at), length) / length)


def check_one_holds(count: int | Tensor, otherwise: str) -> None:
    """Raise unless one range holds.

    This waits for a GPU, because an assertion on the device would end all work there.
    """
    holds = count == 1
    if not (holds.all() if isinstance(holds, Tensor) else holds):
        raise OutOfRangeError(otherwise)


def result(rate: Number, dtype: torch.dtype = torch.float32) -> Number:
    """Return a tensor in ``dtype``; a number already has a value of this dtype."""
    return rate.to(dtype) if isinstance(rate, Tensor) else rate
