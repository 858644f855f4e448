"""Loss scales: fixed, dynamic, and automatic ones that follow the largest gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import keras

from lockstep import scalers
from lockstep.keras3.gradients import state_variable
from lockstep.tf.shared import loss_scales as shared

registered = keras.saving.register_keras_serializable(package="lockstep")


@registered
class FixedLossScale(shared.StaticScale):
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, a number >= 1 that float32 can hold.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> scale = FixedLossScale(8)
        >>> scale, float(scale())
        (FixedLossScale(8.0), 8.0)
    """

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__(shared.fixed_value(loss_scale_value))

    def update(self, grads: Any) -> tuple[None, bool]:
        """Do nothing: (None, True)."""
        return None, True


@registered
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
            scale if that is smaller.
        ceiling: the largest scale, not below the initial one; None: float32's maximum.
        growth_factor: the factor of growth, > 1; None: ``multiplier``.
        backoff_factor: the factor at an overflow, in (0, 1); None: divide by
            ``multiplier``.
        hysteresis: overflows since the last growth until the scale is lowered, >= 1.
        tolerance: the share of steps since the scale last changed that may overflow, in
            [0, 1); not together with ``hysteresis``.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15; hysteresis as
    in Megatron-LM, tolerance as in fairseq.

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=1)
        >>> _, finite = scale.update([keras.ops.array([1.0, float("inf")]), None])
        >>> bool(finite), float(scale())
        (False, 4.0)
    """

    _make_variable = staticmethod(state_variable)

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
    ) -> None:
        policy = scalers.dynamic_policy(
            initial_loss_scale,
            increment_period,
            multiplier,
            floor,
            ceiling,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            hysteresis=hysteresis,
            tolerance=tolerance,
        )
        super().__init__(policy)


SCALES = (FixedLossScale, DynamicLossScale)


def get(identifier: Any) -> shared.LossScale | None:
    """Return the loss scale for ``identifier``.

    A number gives a :class:`FixedLossScale`, "dynamic" a :class:`DynamicLossScale`. A
    loss scale and None are returned unchanged.

    Raises:
        UnknownNameError: a ValueError; anything else.
    """
    return shared.scale_for(identifier, FixedLossScale, DynamicLossScale, SCALES)


@registered
class AutomaticLossScaler(shared.AutomaticLossScaler):
    """A loss scale that is updated with the largest gradient of every step.

    Backoff starts at scale_max; an overflow divides by step_factor, and every
    step_window steps after the last one the scale is multiplied by it. LogMax follows
    the mean and the deviation of log2(amax) so that overflows stay rare.

    State: ``tf.train.Checkpoint`` saves it; ``get_config`` has the arguments only.

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

    Example:
        >>> scaler = AutomaticLossScaler("Backoff", {"scale_max": 64.0})
        >>> int(scaler.update_op(False, float("inf"))), float(scaler.loss_scale)
        (1, 32.0)
    """

    _make_variable = staticmethod(state_variable)

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(algorithm, params, strict)
        self._params = dict(params or {})

    def __repr__(self) -> str:
        shown = f", {self._params}" if self._params else ""
        return f"{type(self).__name__}({self.algorithm!r}{shown})"

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"algorithm": self.algorithm, "params": dict(self._params)}
        return config | ({"strict": True} if self.strict else {})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create a scaler with initial state from the result of ``get_config``."""
        return cls(**config)
