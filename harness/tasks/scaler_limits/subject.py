"""What a backend offers to a run: weights, an optimizer and the scaler under test."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from harness.tasks.scaler_limits.batches import Batches
from harness.tasks.scaler_limits.settings import Settings

__all__ = ["Scaling", "Subject", "of_situation"]


class Scaling(NamedTuple):
    """How a scaler is set up, the same for ours and for the peers.

    Attributes:
        initial: the scale at first.
        period: finite steps in a row after which the scale is doubled.
        clip_norm: of the unscaled gradients; None: no clipping.
    """

    initial: float
    period: int
    clip_norm: float | None = None


class Subject(Protocol):
    """A scaler at work on two weights under SGD with momentum."""

    def step(self, batch: Batches) -> None:
        """Take one step as the scaler's documentation says."""
        ...

    def scale(self) -> float:
        """Return the scale of the next step."""
        ...

    def weights(self) -> list[npt.NDArray[Any]]:
        """Return copies of the weights."""
        ...

    def slots(self) -> list[npt.NDArray[Any]]:
        """Return copies of the momentums; what is not there yet is left out."""
        ...


def of_situation(settings: Settings) -> Scaling:
    """Return a scaler's setup: growth at every step where gradients are zero."""
    never = settings.before + settings.limit + settings.after + 1
    return Scaling(settings.initial, 1 if settings.situation == "zeros" else never)
