"""Loss scaling: docstring texts that all backends share."""

from __future__ import annotations

__all__ = ["TEXTS"]

TEXTS: dict[str, str] = {
    "DynamicLossScale": """\
A loss scale that grows while gradients are finite and shrinks when they are not.

After a finite step, good_steps += 1. When it reaches ``increment_period``,
scale = min(scale growth, ceiling), unless the product is not finite, and
good_steps = overflows = steps = 0. After an overflow, good_steps = 0 and
overflows += 1. If overflows >= hysteresis and overflows / steps >= tolerance, this
step included (by default, on each overflow), scale = max(scale / multiplier, floor),
overflows = hysteresis - 1 and steps = 0.

Args:
    initial_loss_scale: the first scale, > 0.
    increment_period: steps from one growth to the next, >= 1.
    multiplier: the factor of growth, > 1; an overflow divides by it.
    floor: the smallest scale, not above the initial one; None: 1, or the initial
        scale if that is smaller. Strict: always 1.
    ceiling: the largest scale, not below the initial one; None: float32's maximum.
    growth_factor: the factor of growth, > 1; None: ``multiplier``.
    backoff_factor: the factor at an overflow, in (0, 1); None: divide by
        ``multiplier``.
    hysteresis: overflows since the last growth until the scale is lowered, >= 1.
    tolerance: the share of steps since the scale last changed that may overflow, in
        [0, 1); not together with ``hysteresis``.
    strict: as the original: nothing is checked, an overflow raises a scale below 1
        to 1, a sparse gradient needs a dense_shape; the options after
        ``multiplier`` are refused.

Raises:
    OutOfRangeError: a ValueError; an argument is out of its range.
    UnsupportedError: a ValueError; an option under ``strict``.

Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15; hysteresis as
in Megatron-LM, tolerance as in fairseq.
""",
    "FixedLossScale": """\
A loss scale that never moves.

Args:
    loss_scale_value: the factor, a number >= 1 that float32 can hold.
    strict: also accept NaN, infinity and bools; an optimizer with this scale applies
        gradients that are not finite.

Raises:
    OutOfRangeError: a ValueError; no number, or one that is out of range.

Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.
""",
    "AutomaticLossScaler": """\
A loss scale that is updated with the largest gradient of every step.

Backoff starts at scale_max; an overflow divides by step_factor, and every
step_window steps after the last one the scale is multiplied by it. LogMax follows
the mean and the deviation of log2(amax) so that overflows stay rare.

Args:
    algorithm: "Backoff" or "LogMax"; case and outer spaces do not matter.
    params: the algorithm's parameters by name, floats as float, the window as int.
        Backoff: scale_min=1., scale_max=16384., step_factor=2., step_window=2000
        (steps); LogMax: scale_min=1., scale_max=16384., log_max=16., beta1=0.99,
        beta2=0.999, overflow_std_dev=3.09.
    strict: as in OpenSeq2Seq, quirks included: bounds are not checked, a NaN amax
        is no overflow; LogMax counts an overflow as 2^log_max, has the target 2^16
        whatever ``log_max`` is, and after one amax of 0 its scale stays NaN.

Raises:
    UnknownNameError: a ValueError; an unknown algorithm or parameter.
    OutOfRangeError: a ValueError; a parameter of another type or out of its range.

Origin: OpenSeq2Seq (8681d381ed40), ``AutomaticLossScaler``; B. Ginsburg et al.
""",
    "unscale_gradients": """\
Return the gradients of a scaled loss divided by the scale: g x fl32(1 / s).

``apply_gradients`` then does not unscale them again. Half precision becomes float32,
None stays None, and sparse gradients stay sparse.

Raises:
    UnscaledTwiceError: a RuntimeError; a second call before the step.
    MalformedPairsError, DtypeError: TypeErrors; not a list of real gradients.
""",
    "MixedPrecisionLossScaleOptimizer": """\
Scale the loss, unscale the gradients, skip a step that is not finite.

Args:
    loss_scale: a number >= 1, ``dynamic``, or a loss scale.
    clip_norm: the largest global norm of the unscaled gradients, > 0. n is that norm
        in float32; if n > clip_norm, each gradient g becomes g clip_norm / n. If n is
        not finite, the step is skipped. None: no clipping, no norm.
    at_floor: "warn", "raise" or "ignore" when the scale is at its floor and
        ``floor_patience`` steps in a row were skipped.
    floor_patience: steps.
    strict: as in TensorFlow 1.15: with a fixed scale, non-finite gradients are
        applied, float16 is refused, ``get_slot`` returns None, ``variables()`` is
        empty, subnormals are flushed, ``clip_norm`` is refused.

Origin: ``tf.train.experimental.MixedPrecisionLossScaleOptimizer``, TensorFlow 1.15.
By default we differ in what ``strict`` lists.
""",
}
"""Name of a class or function -> its shared docstring text."""
