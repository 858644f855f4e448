"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.tasks.settings import (
    require,
    require_counts,
    require_label,
    require_number,
)
from lockstep.messages.errors import unknown_name

__all__ = ["SOURCES", "Settings"]

SOURCES = ("recorded", "random")

KEYS = ("label", "source", "absent")


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        gradients: ``label``; ``source``, ``recorded`` with the original or ``random``;
            ``absent``, the share of the tensors of a random list that are all zero.
        tensors: the number of tensors in a random list.
        lists: the number of random lists of a run. A run of recorded gradients has one.
        clip_norm: the limit of random lists. A recorded list has its own.
    """

    gradients: Mapping[str, Any]
    tensors: int
    lists: int
    clip_norm: float

    def __post_init__(self) -> None:
        table = isinstance(self.gradients, Mapping)
        expected = "a table with label and source"
        require(table, "gradients", expected, self.gradients)
        for key in self.gradients:
            if key not in KEYS:
                raise unknown_name("key of gradients", key, KEYS)
        require_label("gradients.label", self.gradients.get("label"))
        if self.source not in SOURCES:
            raise unknown_name("gradients.source", self.source, SOURCES)
        require_counts(self, "tensors", "lists")
        require_number(self, "clip_norm")
        self._check_absent()

    def _check_absent(self) -> None:
        """Raise for a share that leaves no tensor, or for one with recorded lists."""
        got: Any = self.gradients.get("absent")
        if not self.is_random:
            require(got is None, "gradients.absent", "nothing where recorded", got)
            return
        number = isinstance(got, int | float) and not isinstance(got, bool)
        fine = number and got >= 0 and self.zeros < self.tensors
        require(fine, "gradients.absent", "a share >= 0 that leaves a tensor", got)

    @property
    def label(self) -> str:
        """The name of the gradients."""
        return str(self.gradients["label"])

    @property
    def source(self) -> str:
        """The source of the gradients, ``recorded`` or ``random``."""
        return str(self.gradients.get("source"))

    @property
    def is_random(self) -> bool:
        """Whether the gradients are random."""
        return self.source == "random"

    @property
    def zeros(self) -> int:
        """The number of tensors of a random list that are all zero."""
        return round(float(self.gradients["absent"]) * self.tensors)
