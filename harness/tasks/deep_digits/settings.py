"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.digits import CLASSES, INPUTS
from harness.tasks.loss_scales import ScaledSettings
from harness.tasks.settings import (
    require,
    require_counts,
    require_number,
    require_spread,
    spread,
)

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings(ScaledSettings):
    """The settings of one run.

    Attributes:
        method: as in ``ScaledSettings``.
        loss_log2: the loss is multiplied by 2**loss_log2, and ``rate`` divided by it.
        rate: the learning rate of SGD with momentum 0.9, before this division.
        depth: the number of hidden layers.
        width: the units of each layer.
        batch: images per step.
        steps: optimizer steps; the middle one has an infinite loss.
        checkpoints: the number of measurements, at equal distances.
    """

    loss_log2: int
    rate: float
    depth: int
    width: int
    batch: int
    steps: int
    checkpoints: int

    def __post_init__(self) -> None:
        require_counts(self, "depth", "width", "batch", "steps", "checkpoints")
        require_spread(self.checkpoints, self.steps)
        whole = isinstance(self.loss_log2, int)
        require(whole, "loss_log2", "a whole number", self.loss_log2)
        require_number(self, "rate")
        # For orthogonal first weights there must be a unit for each class, and no more
        # units than inputs.
        fits = CLASSES <= self.width <= INPUTS
        require(fits, "width", f"from {CLASSES} to {INPUTS} units", self.width)
        self.check_method()

    @property
    def overflow(self) -> int:
        """The index of the step with an infinite loss."""
        return self.steps // 2

    @property
    def measured_at(self) -> list[int]:
        """The steps after which the run is measured, including 0."""
        return spread(self.checkpoints, self.steps)
