"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.byte_transformer.data import Shape
from harness.tasks.settings import require, require_counts, require_number
from lockstep.errors import unknown_name

__all__ = ["OPTIMIZERS", "Settings"]

OPTIMIZERS = ("NovoGrad", "AdamW", "SGD")
"""Lockstep's NovoGrad and two optimizers of the framework; SGD has momentum 0.9."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        optimizer: one of ``OPTIMIZERS``, with its defaults but no weight decay.
        warm_up: the share of the steps in which the rate rises to ``learning_rate``,
            where it stays; 0 for no warm-up.
        learning_rate: the highest rate.
        steps: optimizer steps.
        batch: windows of text per step.
        width, layers, heads, context: the sizes of the transformer.
        windows: the number of held-out windows of the final measurement.
    """

    optimizer: str
    warm_up: float
    learning_rate: float
    steps: int
    batch: int
    width: int
    layers: int
    heads: int
    context: int
    windows: int

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise unknown_name("optimizer", self.optimizer, OPTIMIZERS)
        require_number(self, "learning_rate")
        share = self.warm_up
        number = isinstance(share, int | float) and not isinstance(share, bool)
        fits = number and 0 <= share < 1
        require(fits, "warm_up", "a share of the steps from 0 to below 1", share)
        require_counts(self, "steps", "batch", "windows")
        require_counts(self, "width", "layers", "heads", "context")
        whole = self.width % self.heads == 0
        require(whole, "width", f"a multiple of {self.heads} heads", self.width)

    @property
    def shape(self) -> Shape:
        """The sizes of the transformer."""
        return Shape(self.width, self.layers, self.heads, self.context)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0.

        With warm-up over n steps it is min(1, (step + 1) / n) times the highest rate.
        """
        rising = round(self.warm_up * self.steps)
        return self.learning_rate * min(1.0, (step + 1) / max(rising, 1))
