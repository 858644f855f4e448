"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness.tasks.absent_heads.arms import WRAPPERS
from harness.tasks.settings import bound, require, require_counts, spread
from lockstep.errors import unknown_name

__all__ = ["ABSENTEE", "TASKS", "Settings"]

TASKS = ("digit", "parity", "centre")
ABSENTEE = "parity"


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        optimizer: name of an optimizer of TensorFlow 1, and its arguments.
        wrapper: ``default`` or ``strict``, the multitask wrapper in this mode;
            ``none``, zeros are fed; or ``mean``, zeros are fed and the loss is the mean
            over present tasks.
        presence: the probability p that a task is present in a step.
        steps: optimizer steps of training.
        absence: the numbers of further steps, without parity, after which the state is
            measured.
        checkpoints: the number of measurements during training, at equal distances;
            even, so that one is at half time.
        batch: images per step.
        hidden: the width of the trunk.
    """

    optimizer: Mapping[str, Any]
    wrapper: str
    presence: float
    steps: int
    absence: list[int]
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
        within = isinstance(self.presence, int | float) and 0 < self.presence <= 1
        require(within, "presence", "a probability in (0, 1]", self.presence)
        listed = isinstance(self.absence, list) and len(self.absence) > 0
        whole = listed and all(type(steps) is int for steps in self.absence)
        rising = whole and all(a < b for a, b in pairwise([0, *self.absence]))
        require(rising, "absence", "rising numbers of steps", self.absence)
        object.__setattr__(self, "presence", float(self.presence))
        object.__setattr__(self, "optimizer", bound(self.optimizer))

    @property
    def measured_at(self) -> list[int]:
        """The steps after which everything is measured, including 0."""
        training = spread(self.checkpoints, self.steps)
        return training + [self.steps + k for k in self.absence]
