"""Learning-rate policies: docstring texts that all backends share."""

from __future__ import annotations

__all__ = ["TEXTS"]

TEXTS: dict[str, str] = {
    "fixed_lr": """\
Keep the rate as it is.

The rate is ``learning_rate`` itself, whatever the step.

Args:
    global_step: optimizer steps done so far.
    learning_rate: the rate.
    strict: no difference.
""",
    "piecewise_constant": """\
Change the rate at some steps.

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
""",
    "exp_decay": """\
Decay the rate exponentially.

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
""",
    "poly_decay": """\
Decay the rate along a polynomial.

Return (base - min_lr) (1 - p)^power + min_lr.

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

As in the original, the decay may begin before the warm-up ends. It then raises a base
below ``min_lr``.
""",
    "inv_poly_decay": """\
Decay the rate as an inverse power of the step.

Return max(m, base / (1 + k (s - begin))^power).

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
""",
    "cosine_decay": """\
Decay the rate along half a cosine.

Return (base - min_lr) c + min_lr, c = (1 + cos(pi p)) / 2, p as in poly_decay.

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
""",
    "transformer_policy": """\
Raise the rate linearly, then lower it with the root of the step.

Return rate a d_model^-0.5 min((s + 1) w^-1.5, (s + 1)^-0.5).

Here a is ``coefficient`` and w is ``warmup_steps``.

Args:
    global_step: optimizer steps s done so far.
    learning_rate: a factor.
    d_model: the width of the model.
    warmup_steps: steps until the peak.
    max_lr: the ceiling, if any.
    coefficient: another factor.
    dtype: the dtype of all arithmetic. float16 is coarse and cannot hold large steps:
        from s = 65519 on the rate is 0.
    strict: refuse ``max_lr`` where ``dtype`` is not float32, as the original does.

Paper: Vaswani and others, Attention is all you need, 2017, section 5.3.
""",
}
"""Name of a class or function -> its shared docstring text."""
