"""Learning-rate policies of a step that is a number, a tensor or a variable.

They return a tensor (``fixed_lr``: its argument), computed in float32 with the same
operations as in the original, in eager mode, in ``tf.function`` and in graphs. A
v1-style optimizer accepts a callable, which it calls at every step::

    global_step = tf.Variable(0, dtype=tf.int64)
    rate = lambda: lr_policies.poly_decay(global_step, 0.1, decay_steps=1000)
    optimizer = lockstep.tf.MomentumOptimizer(learning_rate=rate, momentum=0.9)
    optimizer.apply_gradients(pairs, global_step=global_step)

In a graph the tensor itself does as well. The origin of all of them is OpenSeq2Seq
(NVIDIA), ``open_seq2seq/optimizers/lr_policies.py``. Steps are optimizer steps, counted
from 0. ``lr`` is another name of ``learning_rate``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lockstep.errors import OutOfRangeError
from lockstep.policies import (
    checked,
    overlapping_ranges,
    refuse_limit_of_another_dtype,
    step_boundaries,
)

Rate = float | tf.Tensor
Step = int | tf.Tensor | tf.Variable


class AmbiguousStepError(OutOfRangeError, tf.errors.InvalidArgumentError):
    """A step is in two ranges: TensorFlow's error, and the other backends' error."""

    def __init__(self, text: str) -> None:
        tf.errors.InvalidArgumentError.__init__(self, None, None, text)


@checked
def fixed_lr(global_step: Step, learning_rate: Rate, *, strict: bool = False) -> Rate:
    """Keep the rate as it is.

    The rate is ``learning_rate`` itself, whatever the step.

    Args:
        global_step: optimizer steps done so far.
        learning_rate: the rate.
        strict: no difference.
    """
    return learning_rate


@checked
def piecewise_constant(
    global_step: Step,
    learning_rate: Rate,
    boundaries: Sequence[int],
    decay_rates: Sequence[float],
    steps_per_epoch: int | None = None,
    *,
    strict: bool = False,
) -> tf.Tensor:
    """Change the rate at some steps.

    Return rate c_k with b_(k-1) < s <= b_k, c_0 = 1: the boundary has the old rate.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate until the first boundary.
        boundaries: steps b_k, or epochs if ``steps_per_epoch`` is given.
        decay_rates: factors c_k of ``learning_rate`` after each boundary.
        steps_per_epoch: optimizer steps in an epoch.
        strict: check nothing but the boundaries.

    Raises:
        NoBoundariesError: ``boundaries`` is empty.
        OutOfRangeError: not one rate per boundary, boundaries that are no integers, or
            a step in two ranges of unsorted boundaries.
        tf.errors.InvalidArgumentError: in a graph, for a step in two ranges of unsorted
            boundaries. In eager mode one error is of both classes.
    """
    ends = step_boundaries(boundaries, decay_rates, steps_per_epoch)
    step = as_step(global_step)
    # A step on a boundary has the old rate, with and without strict.
    holds = [step <= ends[0]]
    holds += [(step > low) & (step <= high) for low, high in itertools.pairwise(ends)]
    holds += [step > ends[-1]]
    rate = tf.zeros_like(step, tf.float32)
    for inside, factor in zip(holds, [1.0, *decay_rates], strict=True):
        rate = tf.where(inside, single(learning_rate * factor), rate)
    if ends == sorted(ends):
        return rate
    one = tf.reduce_all(tf.reduce_sum(tf.cast(tf.stack(holds), tf.int32), 0) <= 1)
    if tf.executing_eagerly() and not bool(one):
        raise AmbiguousStepError(overlapping_ranges(ends))
    check = tf.debugging.Assert(one, [overlapping_ranges(ends)])
    with tf.control_dependencies([] if check is None else [check]):
        return tf.identity(rate)


@checked
def exp_decay(
    global_step: Step,
    learning_rate: Rate,
    decay_steps: float,
    decay_rate: float,
    use_staircase_decay: bool,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    *,
    strict: bool = False,
) -> tf.Tensor:
    """Decay the rate exponentially.

    Return max(min_lr, rate decay_rate^p), p = (s - begin) / decay_steps, 0 before.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps in which the rate decays once by ``decay_rate``.
        decay_rate: the factor.
        use_staircase_decay: round p down, so that the rate falls in stairs.
        begin_decay_at: the first step of the decay.
        min_lr: the floor, which also holds before the decay.
        strict: refuse an integer rate, check nothing else.
    """
    step, rate = as_step(global_step), single(learning_rate)
    progress = single(step - begin_decay_at) / single(decay_steps)
    if use_staircase_decay:
        progress = tf.floor(progress)
    decayed = rate * tf.pow(single(decay_rate), progress)
    chosen = tf.where(step < begin_decay_at, rate, decayed)
    return tf.maximum(single(min_lr), chosen)


@checked
def poly_decay(
    global_step: Step,
    learning_rate: Rate,
    decay_steps: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    warmup_steps: float = 0,
    *,
    strict: bool = False,
) -> tf.Tensor:
    """Decay the rate along a polynomial.

    Return (base - min_lr) (1 - p)^power + min_lr, where the progress is
    p = min(s - begin, decay_steps) / decay_steps. As in the original, the decay may
    begin before the warm-up ends. It then raises a base below ``min_lr``.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to ``min_lr``.
        power: the exponent; 1 is a straight line.
        begin_decay_at: the first step of the decay; before it the rate is base.
        min_lr: the rate at the end.
        warmup_steps: base = rate s / warmup_steps before this step, then the rate.
        strict: refuse an integer rate, check nothing else.
    """
    step = as_step(global_step)
    base, floor = warmed_up(step, learning_rate, warmup_steps), single(min_lr)
    progress = decay_progress(step, decay_steps, begin_decay_at)
    remaining = tf.pow(1.0 - progress, single(power))
    decayed = (base - floor) * remaining + floor
    return tf.where(step < begin_decay_at, base, decayed)


@checked
def cosine_decay(
    global_step: Step,
    learning_rate: Rate,
    decay_steps: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    min_lr: float = 0.0,
    warmup_steps: float = 0,
    *,
    strict: bool = False,
) -> tf.Tensor:
    """Decay the rate along half a cosine.

    Return (base - min_lr) c + min_lr, c = (1 + cos(pi p)) / 2, p as in
    :func:`poly_decay`.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to ``min_lr``.
        power: 1 (strict: anything, ignored).
        begin_decay_at: the first step of the decay; before it the rate is base.
        min_lr: the rate at the end (strict: as a fraction of the rate).
        warmup_steps: as in :func:`poly_decay`.
        strict: base ((1 - min_lr) c + min_lr), the original's rule.

    Paper: Loshchilov and Hutter, SGDR, 2016.
    """
    step = as_step(global_step)
    base, floor = warmed_up(step, learning_rate, warmup_steps), single(min_lr)
    progress = decay_progress(step, decay_steps, begin_decay_at)
    cosine = 0.5 * (1.0 + tf.cos(math.pi * progress))
    if strict:
        decayed = base * (single(1 - min_lr) * cosine + floor)
    else:
        decayed = (base - floor) * cosine + floor
    return tf.where(step < begin_decay_at, base, decayed)


@checked
def inv_poly_decay(
    global_step: Step,
    learning_rate: Rate,
    decay_steps: float,
    min_lr: float,
    power: float = 1.0,
    begin_decay_at: int = 0,
    warmup_steps: float = 0,
    name: str = "learning_rate",
    *,
    strict: bool = False,
) -> tf.Tensor:
    """Decay the rate as an inverse power of the step.

    Return max(m, base / (1 + k (s - begin))^power). The growth is
    k = ((rate / m)^(1 / power) - 1) / decay_steps, so that m is reached
    ``decay_steps`` after the beginning.

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: the rate at the beginning.
        decay_steps: steps from the rate down to m.
        min_lr: the floor; m is ``min_lr``, but at least 1e-8 and at most the rate.
        power: the exponent, > 0.
        begin_decay_at: the first step of the decay; before it the rate is base.
        warmup_steps: base = rate s / warmup_steps before this step, then the rate.
        name: the name of the resulting tensor.
        strict: ignore ``begin_decay_at``, ``warmup_steps`` and the floor after
            ``decay_steps``, as the original does.
    """
    step, rate, exponent = as_step(global_step), single(learning_rate), single(power)
    # In float64 and rounded once: the original computes the growth in Python floats.
    wide = double(learning_rate)
    least = tf.minimum(tf.maximum(double(min_lr), 1e-8), wide)
    largest = tf.pow(wide / least, 1.0 / double(power))
    growth = single((largest - 1.0) / double(decay_steps))
    if strict:
        denominator = tf.pow(1.0 + growth * single(step), exponent)
        return tf.divide(rate, denominator, name=name)
    base = warmed_up(step, learning_rate, warmup_steps)
    elapsed = single(tf.maximum(step - begin_decay_at, 0))
    decayed = base / tf.pow(1.0 + growth * elapsed, exponent)
    floored = tf.maximum(decayed, single(least))
    return tf.identity(tf.where(step < begin_decay_at, base, floored), name=name)


@checked
def transformer_policy(
    global_step: Step,
    learning_rate: Rate,
    d_model: float,
    warmup_steps: float,
    max_lr: Rate | None = None,
    coefficient: float = 1.0,
    dtype: Any = tf.float32,
    *,
    strict: bool = False,
) -> tf.Tensor:
    """Raise the rate linearly, then lower it with the root of the step.

    Return rate a d_model^-0.5 min((s + 1) w^-1.5, (s + 1)^-0.5).

    Args:
        global_step: optimizer steps s done so far.
        learning_rate: a factor.
        d_model: the width of the model.
        warmup_steps: w, steps until the peak.
        max_lr: the ceiling, if any.
        coefficient: a, another factor.
        dtype: the dtype of all arithmetic. float16 is coarse and cannot hold large
            steps: from s = 65519 on the rate is 0.
        strict: refuse ``max_lr`` where ``dtype`` is not float32, as the original does.

    Paper: Vaswani and others, Attention is all you need, 2017, section 5.3.
    """
    if strict:
        refuse_limit_of_another_dtype(max_lr, dtype)
    kind = tf.as_dtype(dtype)
    step = tf.cast(as_step(global_step), kind) + 1
    warm_up = tf.cast(warmup_steps, kind)
    shape = tf.minimum(step * warm_up**-1.5, step**-0.5)
    rate = coefficient * d_model**-0.5 * shape * tf.cast(learning_rate, kind)
    return rate if max_lr is None else tf.minimum(tf.cast(max_lr, kind), rate)


def warmed_up(step: tf.Tensor, learning_rate: Rate, warmup_steps: float) -> tf.Tensor:
    """Return the rate during a linear warm-up and after it."""
    rate = single(learning_rate)
    if warmup_steps <= 0:
        return rate
    rising = rate * single(step) / single(warmup_steps)
    return tf.where(single(step) < warmup_steps, rising, rate)


def decay_progress(
    step: tf.Tensor, decay_steps: float, begin_decay_at: int
) -> tf.Tensor:
    """Return the fraction of the decay that is done, from 0 to 1."""
    length = single(decay_steps)
    progress = tf.minimum(single(step - begin_decay_at), length) / length
    # XLA multiplies by the reciprocal of a constant, which makes 11 / 11 > 1. The power
    # of 1 - progress < 0 is NaN.
    return tf.minimum(progress, 1.0)


def as_step(global_step: Step) -> tf.Tensor:
    """Return the step as a tensor; a Python integer becomes int64."""
    if isinstance(global_step, int):
        return tf.constant(global_step, tf.int64)
    return tf.convert_to_tensor(global_step)


def single(values: Any) -> tf.Tensor:
    """Return a float32 tensor."""
    return tf.cast(values, tf.float32)


def double(values: Any) -> tf.Tensor:
    """Widen to float64; a Python number keeps all its digits."""
    tensor = tf.convert_to_tensor(values, dtype_hint=tf.float64)
    return tf.cast(tensor, tf.float64)
