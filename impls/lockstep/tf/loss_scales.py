"""The fixed and the dynamic loss scale for v1-style optimizers."""

from __future__ import annotations

from functools import partial
from typing import Any

from lockstep import scalers
from lockstep.tf.shared import loss_scales as shared
from lockstep.tf.shared.loss_scales import LossScale
from lockstep.tf.wrapper import become_strict


class FixedLossScale(shared.StaticScale):
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, a number >= 1 that float32 can hold.
        strict: also accept NaN, infinity and bools; an optimizer with this scale
            applies gradients that are not finite.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> scale = FixedLossScale(8)
        >>> scale, float(scale())
        (FixedLossScale(8.0), 8.0)
    """

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        if strict:
            become_strict(self, loss_scale_value)
            return
        super().__init__(shared.fixed_value(loss_scale_value))


class DynamicLossScale(shared.PolicyScale):
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    After a finite step, good_steps += 1. When it reaches ``increment_period``,
    scale = min(scale growth, ceiling), unless the product is not finite, and
    good_steps = overflows = steps = 0. After an overflow, good_steps = 0 and
    overflows += 1. If overflows >= hysteresis and overflows / steps >= tolerance, this
    step included (by default, on each overflow), scale = max(scale / multiplier,
    floor), overflows = hysteresis - 1 and steps = 0.

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
            ``multiplier`` are refused with a TypeError.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15; hysteresis as
    in Megatron-LM, tolerance as in fairseq.

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=1)
        >>> _, finite = scale.update([tf.constant([1.0, float("inf")]), None])
        >>> bool(finite), float(scale())
        (False, 4.0)
    """

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        *,
        floor: float | None = None,
        ceiling: float | None = None,
        growth_factor: float | None = None,
        backoff_factor: float | None = None,
        hysteresis: int = 1,
        tolerance: float = 0.0,
        strict: bool = False,
    ) -> None:
        options = {
            "growth_factor": growth_factor,
            "backoff_factor": backoff_factor,
            "hysteresis": hysteresis,
            "tolerance": tolerance,
        }
        numbers = initial_loss_scale, increment_period, multiplier
        if strict:
            bounds = {"floor": floor, "ceiling": ceiling}
            defaults = scalers.DynamicPolicy._field_defaults
            chosen = {k: v for k, v in options.items() if v != defaults[k]}
            chosen |= {k: v for k, v in bounds.items() if v is not None}
            become_strict(self, *numbers, **chosen)
            return
        policy = scalers.dynamic_policy(*numbers, floor, ceiling, **options)
        super().__init__(policy)


def get(identifier: Any, strict: bool = False) -> LossScale | None:
    """Return the loss scale for ``identifier``.

    A number gives a :class:`FixedLossScale`, "dynamic" a :class:`DynamicLossScale`. A
    loss scale and None are returned unchanged.

    Args:
        identifier: a number, "dynamic", a loss scale or None.
        strict: return a strict scale for a number or "dynamic".

    Raises:
        UnknownNameError: a ValueError; anything else.
    """
    fixed = partial(FixedLossScale, strict=strict)
    dynamic = partial(DynamicLossScale, strict=strict)
    return shared.scale_for(identifier, fixed, dynamic, LossScale)
