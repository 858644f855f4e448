"""Gradients that were divided by the loss scale before the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from lockstep.pytorch.scaling.scaled_step import ScaledStep

__all__ = ["Source", "Unscaled"]


class Source(NamedTuple):
    """The model's own gradient of a weight, and its version when it was read."""

    weight: Tensor
    gradient: Tensor | None
    version: int

    @classmethod
    def of(cls, weight: Tensor) -> Source:
        """Return the present gradient of a weight."""
        gradient = weight.grad
        return cls(weight, gradient, -1 if gradient is None else gradient._version)

    @property
    def changed(self) -> bool:
        """Whether the gradient was replaced or overwritten since then."""
        now = Source.of(self.weight)
        return now.gradient is not self.gradient or now.version != self.version


class Unscaled(NamedTuple):
    """Gradients that ``unscale_`` or a failed step divided, stored until the next step.

    If a gradient was not finite, the step is skipped, even if the gradient has been
    clipped to finite values since.

    Attributes:
        look: the gradients, and whether they were finite.
        masters: the masters whose ``.grad`` is set until the step.
        sources: the gradients that were copied to the masters.
        failed: whether a step has failed since.
        mixed: whether some gradients may still be multiplied by the scale.
    """

    look: ScaledStep
    masters: Sequence[Tensor] = ()
    sources: Sequence[Source] = ()
    failed: bool = False
    mixed: bool = False

    def release(self) -> None:
        """Set the gradients of the masters to None."""
        for master in self.masters:
            master.grad = None
