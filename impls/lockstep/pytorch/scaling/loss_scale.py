"""The two loss scales of TensorFlow, for PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.docstrings import documented
from lockstep.messages.base import checkpoints as saved_states
from lockstep.messages.scaling import loss_scale as words
from lockstep.pytorch.base.gradients import dtype_name, require_tensor
from lockstep.pytorch.scaling.dynamic_scale import (
    DynamicState,
    keeps_scale,
    start_dynamic,
    step_dynamic,
    step_dynamic_on_device,
)
from lockstep.pytorch.tensors.finite import finite_flags
from lockstep.pytorch.tensors.rounding import rounded
from lockstep.quirks import quirks_of

__all__ = [
    "NUMBERS",
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "get",
]

SCALE, GOOD_STEPS, STEPS = "loss_scale", "loss_scale_good_steps", "loss_scale_steps"
NUMBERS = SCALE, GOOD_STEPS, "loss_scale_overflows", STEPS
"""The keys of what changes, in a checkpoint too: the fields of ``DynamicState``."""


class LossScale:
    """Base of both loss scales: a call returns the scale, and ``update`` changes it.

    The state is in ``numbers``. These are Python numbers, or 0-d tensors on a device
    that are updated without a host sync.
    """

    good_steps = 0
    keys: tuple[str, ...] = ()
    """The keys of ``numbers``."""

    def __init__(self) -> None:
        self.numbers: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to copy: the numbers, but not the group they are in."""
        numbers = {key: self.numbers[key] for key in self.keys}
        return {**vars(self), "numbers": numbers}

    def counts_for_another(self, group: dict[str, Any]) -> bool:
        """Whether the numbers of this scale are in another optimizer's group."""
        # A scale in use has its numbers in the optimizer's group, beside "params".
        elsewhere = "params" in self.numbers and self.numbers is not group
        return bool(self.keys) and elsewhere

    def live_in(self, group: dict[str, Any]) -> None:
        """Use the numbers in a group, and add those that it lacks."""
        for key in self.keys:
            group.setdefault(key, self.numbers[key])
        self.numbers = group

    def check_saved(self, owner: str, group: Mapping[str, Any]) -> None:
        """Raise for saved numbers that this scale, of ``owner``, cannot load."""

    def __call__(self) -> Tensor:
        """Return the current scale: a 0-d float32 tensor."""
        return self.on_device(torch.device("cpu"))

    def value(self) -> float:
        """Return the current scale as a Python number, rounded to float32."""
        raise NotImplementedError

    def update(self, grads: Any) -> tuple[None, bool]:
        """Update the scale after a step; ``grads`` are its unscaled gradients.

        Returns:
            None, and whether to apply the gradients.
        """
        raise NotImplementedError

    def move(self, finite: bool | Tensor) -> None:
        """Update the scale after a step; ``finite`` is a bool or a 0-d tensor."""

    def on_device(self, device: torch.device) -> Tensor:
        """Return the current scale on ``device``, 0-d, float32; tensors stay there."""
        return torch.full((), self.value(), dtype=torch.float32, device=device)

    def may_be_below_one(self) -> bool:
        """Whether dividing by the scale may make gradients larger."""
        return False

    def at_floor(self) -> bool:
        """Whether an overflow leaves the scale where it is."""
        return True

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for ``from_config``."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a loss scale with these arguments."""
        return cls(**words.checked_config(cls, config))

    def __repr__(self) -> str:
        return words.shown(type(self).__name__, self.get_config())


@documented
class FixedLossScale(LossScale):
    """...

    Args:
        strict: NaN, infinity and bools pass, too; NumPy numbers do not.

    Example:
        >>> FixedLossScale(128)().item()
        128.0
    """

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        super().__init__()
        unchecked = quirks_of(strict).arguments_unchecked
        self.loss_scale_value = words.fixed_value(loss_scale_value, unchecked)

    def value(self) -> float:
        """The factor in float32."""
        return rounded(self.loss_scale_value, torch.float32)

    def update(self, grads: Any) -> tuple[None, bool]:
        """Return None and True: a fixed scale never changes."""
        return None, True

    def get_config(self) -> dict[str, Any]:
        """Return the factor, for ``from_config``."""
        return {"loss_scale_value": self.loss_scale_value}

    def __repr__(self) -> str:
        return f"FixedLossScale({self.loss_scale_value})"


@documented
class DynamicLossScale(words.OldNames, LossScale):
    """...

    Args:
        strict: as in TensorFlow 1.15: arguments are not checked, and an overflow
            raises a scale below 1 to 1. There is no floor and no ceiling.

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
        *,
        floor: float | None = None,
        ceiling: float | None = None,
        strict: bool = False,
        growth_factor: float | None = None,
        backoff_factor: float | None = None,
        hysteresis: int = 1,
        tolerance: float = 0.0,
    ) -> None:
        super().__init__()
        self.policy = words.dynamic_policy(
            initial_loss_scale,
            increment_period,
            multiplier,
            floor,
            ceiling,
            strict,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            hysteresis=hysteresis,
            tolerance=tolerance,
        )
        self.strict = strict
        self.keys = NUMBERS if self.policy.is_patient else NUMBERS[:2]
        self.keep(start_dynamic(self.policy))

    initial_loss_scale = property(lambda self: self.policy.initial_loss_scale)
    increment_period = property(lambda self: self.policy.increment_period)
    multiplier = property(lambda self: self.policy.multiplier)
    floor = property(lambda self: self.policy.floor)
    ceiling = property(lambda self: self.policy.ceiling)
    growth_factor = property(lambda self: self.policy.growth)
    backoff_factor = property(lambda self: self.policy.backoff)
    hysteresis = property(lambda self: self.policy.hysteresis)
    tolerance = property(lambda self: self.policy.tolerance)

    @property
    def good_steps(self) -> int:
        """Finite steps in a row since the last change of the scale."""
        return int(self.numbers[GOOD_STEPS])

    def check_saved(self, owner: str, group: Mapping[str, Any]) -> None:
        """Raise for saved counts that are not valid."""
        for key in NUMBERS[1:]:
            saved_states.check_count(owner, key, group.get(key, 0))

    def value(self) -> float:
        """Return the current scale as a Python number, rounded to float32."""
        return float(self.numbers[SCALE])

    def on_device(self, device: torch.device) -> Tensor:
        """Return the current scale on ``device``, 0-d, float32; tensors stay there."""
        scale = self.numbers[SCALE]
        # Copied, because the next step updates the scale in place.
        return scale.clone() if is_tensor(scale) else super().on_device(device)

    def may_be_below_one(self) -> bool:
        """Whether dividing by the scale may make gradients larger."""
        return self.policy.floor < 1

    def update(self, grads: Any) -> tuple[None, bool]:
        """Update the scale; the gradients are to be applied if all are finite.

        This costs one host sync.
        """
        gradients = list(flat(grads))
        for position, gradient in enumerate(gradients):
            require_tensor(gradient, "DynamicLossScale.update", f"gradient {position}")
            words.check_gradient_dtype(dtype_name(gradient))
        finite = all(finite_flags(gradients))
        self.move(finite)
        return None, finite

    def move(self, finite: bool | Tensor) -> None:
        """Update the scale after a step; ``finite`` is a bool or a 0-d tensor."""
        numbers = self.numbers
        on_device = is_tensor(numbers[SCALE])
        if not on_device and finite and keeps_scale(self.policy, numbers[GOOD_STEPS]):
            # Nearly every step: the counts of steps grow, and nothing else changes.
            numbers[GOOD_STEPS] += 1
            if self.policy.is_patient:
                numbers[STEPS] += 1
            return
        state = DynamicState(*[numbers[key] for key in self.keys])
        if not on_device:
            self.keep(step_dynamic(self.policy, state, bool(finite)))
            return
        flag = torch.as_tensor(finite, device=state.loss_scale.device)
        after = step_dynamic_on_device(self.policy, state, flag)
        # In place, so that a captured graph finds them again.
        for key, value in zip(self.keys, after, strict=False):
            numbers[key].copy_(value)

    def keep(self, state: DynamicState) -> None:
        """Store a state; overflows and steps only if an option uses them."""
        self.numbers.update(zip(self.keys, state, strict=False))

    def at_floor(self) -> bool:
        """Whether the scale is as small as it gets."""
        return self.value() <= float(np.float32(self.policy.floor))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments, for ``from_config``."""
        without_options = quirks_of(self.strict).dynamic_scale_floor
        return words.dynamic_config(self.policy, without_options)

    @property
    def _current_loss_scale(self) -> float:
        return self.value()

    @property
    def _num_good_steps(self) -> int:
        return self.good_steps

    def __repr__(self) -> str:
        """Show the scale, the good steps and the arguments."""
        name, config = type(self).__name__, self.get_config()
        state = {"current_loss_scale": self.value(), "num_good_steps": self.good_steps}
        return words.shown(name, config, **state)


def get(identifier: Any, strict: bool = False) -> LossScale | None:
    """Return a loss scale as it is, or make one from a number or "dynamic".

    Without checks, as under strict, NumPy numbers other than float64 are refused, but
    bools, NaN and infinity are accepted.

    Raises:
        ValueError: anything else except None, which is returned; or a number that is
            below 1 or not finite.
    """
    numbers = int | float if quirks_of(strict).arguments_unchecked else Real
    if isinstance(identifier, numbers):
        return FixedLossScale(identifier, strict)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale(strict=strict)
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    raise words.bad_identifier(identifier)


def is_tensor(number: Any) -> bool:
    """Whether a number is a tensor on a device."""
    return isinstance(number, Tensor)


def flat(nest: Any) -> Iterator[Tensor]:
    """Yield the gradients in nested lists, tuples and mappings, without None."""
    if isinstance(nest, Mapping):
        nest = list(nest.values())
    if isinstance(nest, list | tuple):
        for entry in nest:
            yield from flat(entry)
    elif nest is not None:
        yield nest
