"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.tasks.absent_heads.arms import WRAPPERS
from harness.tasks.settings import bound, require, require_counts, spread
from lockstep.errors import unknown_name

__all__ = ["GENRES", "Settings"]

GENRES = (
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        optimizer: name of an optimizer of TensorFlow 1, and its arguments.
        wrapper: ``default`` or ``strict``, the multitask wrapper in this mode;
            ``none``, zeros are fed; or ``mean``, zeros are fed and the loss is the mean
            over present tasks.
        steps: optimizer steps of training.
        checkpoints: the number of measurements during training, at equal distances;
            even, so that one is at half time.
        batch: ratings per step.
        hidden: the width of the trunk.
    """

    optimizer: Mapping[str, Any]
    wrapper: str
    steps: int
    checkpoints: int
    batch: int
    hidden: int

    def __post_init__(self) -> None:
        if self.wrapper not in WRAPPERS:
            raise unknown_name("wrapper", self.wrapper, WRAPPERS)
        require_counts(self, "steps", "checkpoints", "batch", "hidden")
        even = self.checkpoints % 2 == 0 and self.steps % self.checkpoints == 0
        got = f"{self.checkpoints} for {self.steps} steps"
        require(even, "checkpoints", "an even number that divides steps", got)
        object.__setattr__(self, "optimizer", bound(self.optimizer))

    @property
    def measured_at(self) -> list[int]:
        """The steps after which everything is measured, including 0."""
        return spread(self.checkpoints, self.steps)
