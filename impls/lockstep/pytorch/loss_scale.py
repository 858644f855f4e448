"""The two loss scales of TensorFlow, for PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.pytorch.core.dynamic_scale import (
    DynamicState,
    start_dynamic,
    step_dynamic,
)
from lockstep.pytorch.core.finite import finite_flags
from lockstep.pytorch.gradients import dtype_name
from lockstep.spec import loss_scaling as words

__all__ = [
    "NUMBERS",
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "get",
]

SCALE, GOOD_STEPS = NUMBERS = "loss_scale", "loss_scale_good_steps"
"""The keys of what changes, in a checkpoint too."""


class LossScale:
    """Base of the two: call it for the current scale, ``update`` it once a step.

    What changes is in ``numbers``, a dict of plain numbers.
    """

    good_steps = 0

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}

    def __call__(self) -> Tensor:
        """Return the current scale: a 0-d float32 tensor."""
        return torch.tensor(self.value())

    def value(self) -> float:
        """Return the current scale as a number that float32 can hold."""
        raise NotImplementedError

    def update(self, grads: Any) -> tuple[None, bool]:
        """Look at the unscaled gradients of a step.

        Returns:
            None, and whether the gradients should be applied.
        """
        raise NotImplementedError

    def move(self, finite: bool) -> None:
        """Take note of one step."""

    def at_floor(self) -> bool:
        """Say whether no overflow can make the scale smaller."""
        return True

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a new one from what ``get_config`` returned."""
        return cls(**config)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


class FixedLossScale(LossScale):
    """A loss scale that stays what it is.

    Args:
        loss_scale_value: int or float, >= 1; NaN and infinity pass.
        strict: without effect.

    Raises:
        ValueError: another type, or below 1.

    Origin: TensorFlow 1.15, ``tf.train.experimental.FixedLossScale``.

    Example:
        >>> FixedLossScale(128)().item()
        128.0
    """

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        super().__init__()
        self.loss_scale_value = words.fixed_value(loss_scale_value)

    def value(self) -> float:
        """Return the value in float32."""
        with np.errstate(over="ignore"):
            return float(np.float32(self.loss_scale_value))

    def update(self, grads: Any) -> tuple[None, bool]:
        """Return (None, True) whatever the gradients are."""
        return None, True

    def get_config(self) -> dict[str, Any]:
        """Return the argument of the constructor."""
        return {"loss_scale_value": self.loss_scale_value}

    def __repr__(self) -> str:
        return f"FixedLossScale({self.loss_scale_value})"


class DynamicLossScale(LossScale):
    """A loss scale that grows after finite steps and shrinks after another one.

    ``increment_period`` finite steps in a row: scale = scale multiplier. A step that is
    not finite: scale = max(scale / multiplier, floor).

    Args:
        initial_loss_scale: the scale to begin with, > 0.
        increment_period: optimizer steps, >= 1.
        multiplier: > 1.
        floor: > 0, at most the initial scale; None: 1, or the initial scale if smaller.
        ceiling: at least the initial scale; None: the largest that float32 can hold.
        strict: as in TensorFlow 1.15: nothing is checked, an overflow raises a scale
            below 1 to 1; no floor, no ceiling.

    Raises:
        ValueError: an argument out of range.

    Origin: TensorFlow 1.15, ``tf.train.experimental.DynamicLossScale``.

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=2)
        >>> scale.update([torch.tensor([float("inf")])])
        (None, False)
        >>> scale().item()
        4.0
    """

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        floor: float | None = None,
        ceiling: float | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__()
        arguments = (initial_loss_scale, increment_period, multiplier)
        self.policy = words.dynamic_policy(*arguments, floor, ceiling, strict)
        self.strict = strict
        self.keep(start_dynamic(self.policy))

    initial_loss_scale = property(lambda self: self.policy.initial_loss_scale)
    increment_period = property(lambda self: self.policy.increment_period)
    multiplier = property(lambda self: self.policy.multiplier)
    floor = property(lambda self: self.policy.floor)
    ceiling = property(lambda self: self.policy.ceiling)

    @property
    def good_steps(self) -> int:
        """Finite steps since the scale last moved."""
        return self.numbers[GOOD_STEPS]

    def value(self) -> float:
        """Return the current scale as a number that float32 can hold."""
        return self.numbers[SCALE]

    def update(self, grads: Any) -> tuple[None, bool]:
        """Move the scale; the gradients should be applied if all are finite.

        Costs one host sync.
        """
        gradients = list(flat(grads))
        for gradient in gradients:
            words.check_gradient_dtype(dtype_name(gradient))
        finite = all(finite_flags(gradients))
        self.move(finite)
        return None, finite

    def move(self, finite: bool) -> None:
        """Take note of one step."""
        state = DynamicState(np.float32(self.value()), self.good_steps)
        self.keep(step_dynamic(self.policy, state, finite))

    def keep(self, state: DynamicState) -> None:
        """Store a state as plain numbers."""
        self.numbers[SCALE] = float(state.loss_scale)
        self.numbers[GOOD_STEPS] = state.good_steps

    def at_floor(self) -> bool:
        """Say whether no overflow can make the scale smaller."""
        return self.value() <= float(np.float32(self.policy.floor))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return words.dynamic_config(self.policy, self.strict)


def get(identifier: Any, strict: bool = False) -> LossScale | None:
    """Return the loss scale that a number, "dynamic" or a loss scale stands for.

    Raises:
        ValueError: anything else, but None, which stays None.
    """
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale(strict=strict)
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    raise words.bad_identifier(identifier)


def flat(nest: Any) -> Iterator[Tensor]:
    """Yield the gradients of a nest of lists, tuples and mappings, None left out."""
    if isinstance(nest, Mapping):
        nest = list(nest.values())
    if isinstance(nest, list | tuple):
        for entry in nest:
            yield from flat(entry)
    elif nest is not None:
        yield nest
