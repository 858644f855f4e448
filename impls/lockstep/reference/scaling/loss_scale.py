"""Loss scales of the reference: a fixed factor, and one that follows overflows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import Array, Gradient, Rows
from lockstep.messages.scaling import loss_scale as words
from lockstep.messages.scaling import refusals
from lockstep.quirks import quirks_of
from lockstep.reference.scaling.dynamic_scale import start_dynamic, step_dynamic
from lockstep.reference.tensors.rows import sum_duplicates

__all__ = ["DynamicLossScale", "FixedLossScale", "LossScale", "get", "is_finite"]


class LossScale:
    """Base of both loss scales: call it for the scale, ``update`` it once per step."""

    good_steps = 0

    def __call__(self) -> np.float32:
        """Return the current scale."""
        raise NotImplementedError

    def update(self, grads: Any) -> tuple[None, bool]:
        """Check the unscaled gradients of a step, and update the scale.

        Returns:
            None, and whether the gradients should be applied.
        """
        raise NotImplementedError

    def move(self, finite: bool) -> None:
        """Update the scale after one step."""

    def variables(self) -> list[Array]:
        """Return the state; by default there is none."""
        return []

    def at_floor(self) -> bool:
        """Return whether no overflow can lower the scale any more."""
        return True

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a new loss scale from the result of ``get_config``."""
        return cls(**words.checked_config(cls, config))

    def __repr__(self) -> str:
        return words.shown(type(self).__name__, self.get_config())


@documented
class FixedLossScale(LossScale):
    """A loss scale that never moves.

    Args:
        strict: also accept NaN, infinity and bools, but no NumPy number.
    """

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        unchecked = quirks_of(strict).arguments_unchecked
        self.loss_scale_value = words.fixed_value(loss_scale_value, unchecked)

    def __call__(self) -> np.float32:
        """Return the value in float32."""
        return np.float32(self.loss_scale_value)

    def update(self, grads: Any) -> tuple[None, bool]:
        """Return (None, True) whatever the gradients are."""
        return None, True

    def get_config(self) -> dict[str, Any]:
        """Return the argument of the constructor."""
        return {"loss_scale_value": self.loss_scale_value}

    def __repr__(self) -> str:
        return f"FixedLossScale({self.loss_scale_value})"


@documented
class DynamicLossScale(words.OldNames, LossScale):
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    ...
    """

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
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
        self.state = start_dynamic(self.policy)
        self.quirks = quirks_of(strict)

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
    def good_steps(self) -> int:  # type: ignore[override]
        """Finite steps since the scale last changed."""
        return self.state.good_steps

    def variables(self) -> list[Array]:
        """Return the scale and the good steps; with patience, its two counts too."""
        numbers = self.state if self.policy.is_patient else self.state[:2]
        return [np.asarray(number) for number in numbers]

    def __call__(self) -> np.float32:
        """Return the current scale."""
        return self.state.loss_scale

    def update(self, grads: Any) -> tuple[None, bool]:
        """Update the scale; return None, and whether all gradients are finite."""
        needs_shape = self.quirks.dynamic_scale_dense_shape
        finite = all([is_finite(g, needs_shape) for g in flat(grads)])
        self.move(finite)
        return None, finite

    def move(self, finite: bool) -> None:
        """Update the scale after one step."""
        self.state = step_dynamic(self.policy, self.state, finite)

    def at_floor(self) -> bool:
        """Return whether no overflow can lower the scale any more."""
        return bool(self() <= np.float32(self.policy.floor))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name."""
        return words.dynamic_config(self.policy, self.quirks.dynamic_scale_floor)

    @property
    def _current_loss_scale(self) -> np.float32:
        return self()

    @property
    def _num_good_steps(self) -> int:
        return self.good_steps

    def __repr__(self) -> str:
        """Return the scale and the good steps, then the arguments."""
        name, config = type(self).__name__, self.get_config()
        state = {"current_loss_scale": self(), "num_good_steps": self.good_steps}
        return words.shown(name, config, **state)


def get(identifier: Any, strict: bool = False) -> LossScale | None:
    """Return the loss scale for a number, "dynamic", a loss scale, or None (no scale).

    Raises:
        ValueError: any other identifier.
    """
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier, strict)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale(strict=strict)
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    raise words.bad_identifier(identifier)


def is_finite(gradient: Gradient, strict: bool = False) -> bool:
    """Return whether every element is finite; None counts as finite.

    Duplicate rows are summed first. Strict: rows without a dense shape raise.
    """
    if gradient is None:
        return True
    if isinstance(gradient, Rows):
        if strict and gradient.dense_shape is None:
            raise refusals.WITHOUT_DENSE_SHAPE.error(name="a sparse gradient")
        with np.errstate(all="ignore"):
            gradient = sum_duplicates(gradient).values
    words.check_gradient_dtype(str(gradient.dtype))
    return bool(np.all(np.isfinite(gradient)))


def flat(nest: Any) -> Iterator[Gradient]:
    """Yield the gradients in nested lists, tuples and mappings."""
    if isinstance(nest, Mapping):
        nest = list(nest.values())
    if isinstance(nest, list | tuple) and not isinstance(nest, Rows):
        for entry in nest:
            yield from flat(entry)
    else:
        yield nest
