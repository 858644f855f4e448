"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require, require_counts, require_spread, spread
from lockstep.messages.errors import unknown_name

__all__ = ["METHODS", "Settings"]

METHODS = ("fp16", "masters")


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        method: ``fp16``, SGD on the float16 weights themselves, or ``masters``.
        ratio: weight / update, before both are rounded to float16.
        weights: the number of weights.
        steps: the number of updates.
        checkpoints: the number of measurements, at equal distances.
    """

    method: str
    ratio: float
    weights: int
    steps: int
    checkpoints: int

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        require_counts(self, "weights", "steps", "checkpoints")
        require_spread(self.checkpoints, self.steps)
        # The smallest weight is 16, and its update must be a normal float16 number.
        fine = 1 < self.ratio <= 2.0**18
        require(fine, "ratio", "above 1 and at most 2^18", self.ratio)

    @property
    def measured_at(self) -> list[int]:
        """The steps after which the run is measured: the first, and equally spaced."""
        return sorted({1, *spread(self.checkpoints, self.steps)[1:]})
