"""The settings that runs with embeddings share, checked where they are declared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lockstep.spec.errors import OutOfRangeError, sentence, unknown_name
from lockstep.spec.optimizers import OPTIMIZERS

__all__ = ["LIMITS", "EmbeddingSettings", "require"]

LIMITS = ("none", "clip", "lookup")


@dataclass(frozen=True)
class EmbeddingSettings:
    """What one run does, whatever its rows stand for.

    Attributes:
        optimizer: a name of ``lockstep.spec.optimizers`` and its arguments.
        limit: ``none``; ``clip``, rows after each step, by the wrapper; or ``lookup``,
            rows as they are looked up.
        max_norm: the largest norm of a row that is left as it is.
        steps: optimizer steps of training.
        checkpoints: measurements during training, at equal distances.
        batch: examples a step.
        width: entries of a row.
    """

    optimizer: Mapping[str, Any]
    limit: str
    max_norm: float
    steps: int
    checkpoints: int
    batch: int
    width: int

    def __post_init__(self) -> None:
        if self.limit not in LIMITS:
            raise unknown_name("limit", self.limit, LIMITS)
        for field in fields(self):
            if field.type == "int":
                value = getattr(self, field.name)
                counted = isinstance(value, int) and value > 0
                require(counted, field.name, "a whole number > 0", value)
        got = f"{self.checkpoints} for {self.steps} steps"
        divides = self.steps % self.checkpoints == 0
        require(divides, "checkpoints", "a number that divides steps", got)
        number = isinstance(self.max_norm, int | float)
        finite = number and 0 < self.max_norm < math.inf
        require(finite, "max_norm", "a finite number > 0", self.max_norm)
        object.__setattr__(self, "max_norm", float(self.max_norm))
        object.__setattr__(self, "optimizer", _bound(self.optimizer))

    @property
    def measured_at(self) -> list[int]:
        """The steps after which everything is measured, 0 among them."""
        interval = self.steps // self.checkpoints
        return [interval * k for k in range(self.checkpoints + 1)]


def require(claim: bool, subject: str, expected: str, got: object) -> None:
    """Raise OutOfRangeError, in one sentence, unless ``claim`` holds."""
    if not claim:
        remedy = "change it in the experiment's file"
        raise OutOfRangeError(sentence(subject, expected, str(got), remedy))


def _bound(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of an optimizer's arguments and check them."""
    arguments = dict(optimizer)
    name = arguments.pop("name", None)
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    return {"name": name, **OPTIMIZERS[name].bind((), arguments)}
