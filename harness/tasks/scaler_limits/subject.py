"""The interface of a backend: weights, an optimizer and the tested scaler."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from harness.tasks.scaler_limits.batches import Batches
from harness.tasks.scaler_limits.settings import Settings

__all__ = ["Scaling", "Subject", "of_situation"]


class Scaling(NamedTuple):
    """The settings of a scaler, which are the same for ours and for the peers.

    Attributes:
        initial: the initial scale.
        period: consecutive finite steps after which the scale is doubled.
        clip_norm: the largest norm of the unscaled gradients; None for no clipping.
    """

    initial: float
    period: int
    clip_norm: float | None = None


class Subject(Protocol):
    """A scaler with two weights and SGD with momentum."""

    def step(self, batch: Batches) -> None:
        """Take one step as in the scaler's documentation."""
        ...

    def scale(self) -> float:
        """Return the scale of the next step."""
        ...

    def weights(self) -> list[npt.NDArray[Any]]:
        """Return copies of the weights."""
        ...

    def slots(self) -> list[npt.NDArray[Any]]:
        """Return copies of the momentum slots; missing ones are left out."""
        ...


def of_situation(settings: Settings) -> Scaling:
    """Return a scaler's settings; with zero gradients, it grows at every step."""
    never = settings.before + settings.limit + settings.after + 1
    return Scaling(settings.initial, 1 if settings.situation == "zeros" else never)
