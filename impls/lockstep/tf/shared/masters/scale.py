"""Loss scales of all kinds that the wrapper with masters accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.quirks import Quirks

__all__ = ["Kinds"]


class StaticScale:
    """A constant scale of any size, even below 1; it is always at its floor."""

    variables: Sequence[Any] = ()

    def __init__(self, number: float) -> None:
        self.number = number

    def __call__(self) -> tf.Tensor:
        """Return the number: float32, 0-d."""
        return tf.constant(self.number, tf.float32)

    def at_floor(self) -> tf.Tensor:
        """Return True."""
        return tf.constant(True)

    def move(self, finite: tf.Tensor) -> tf.Operation | None:
        """Do nothing."""
        return tf.no_op()


class AutomaticScale:
    """An automatic scaler; it needs the largest gradient to update."""

    def __init__(self, scaler: Any, variables: Sequence[Any]) -> None:
        self.scaler = scaler
        self.variables = variables

    def __call__(self) -> tf.Tensor:
        """Return the scale of the next step: float32, 0-d."""
        return self.scaler.loss_scale

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return self.scaler.at_floor()


class UnusableScale:
    """A scale that the original's constructor accepts, but that it cannot use."""

    def __init__(self, argument: Any, variables: Sequence[Any]) -> None:
        self.argument = argument
        self.variables = variables

    def __call__(self) -> tf.Tensor:
        """Raise."""
        raise refusals.UNUSABLE.error(loss_scale=self.argument)


class Kinds(NamedTuple):
    """The classes of a backend's loss scales.

    Attributes:
        scale: the base class.
        automatic: the automatic scaler.
        dynamic: creates the scale for the name "dynamic".
        state: returns the variables of an automatic scaler.
    """

    scale: type
    automatic: type
    dynamic: Callable[[], Any]
    state: Callable[[Any], Sequence[Any]]

    def scale_of(self, loss_scale: Any, quirks: Quirks) -> Any:
        """Return the float or object for ``loss_scale``.

        Raises:
            OutOfRangeError, UnknownNameError: a ValueError; by default also for a value
                of another type.
        """
        if isinstance(loss_scale, (self.automatic, self.scale)):
            return loss_scale
        anything = quirks.masters_scale_type
        if isinstance(loss_scale, str) and loss_scale == "dynamic" and not anything:
            return self.dynamic()
        number = words.scale_number(loss_scale, anything)
        if number is None and not anything:
            raise refusals.BAD_LOSS_SCALE.error(loss_scale=loss_scale)
        return loss_scale if number is None else number

    def as_loss_scale(self, scale: Any, quirks: Quirks) -> Any:
        """Convert the result of :meth:`scale_of` to a loss scale."""
        if isinstance(scale, self.automatic):
            return AutomaticScale(scale, self.state(scale))
        if isinstance(scale, float):
            return StaticScale(scale)
        is_scale = isinstance(scale, self.scale)
        if is_scale and not quirks.masters_scale_type:
            return scale
        return UnusableScale(scale, scale.variables if is_scale else ())
