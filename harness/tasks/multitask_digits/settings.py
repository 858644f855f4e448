"""The settings of one run, checked where they are declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lockstep.spec.errors import OutOfRangeError, sentence, unknown_name
from lockstep.spec.optimizers import OPTIMIZERS

__all__ = ["ABSENTEE", "TASKS", "WRAPPERS", "Settings"]

TASKS = ("digit", "parity", "centre")
ABSENTEE = "parity"
WRAPPERS = ("none", "default", "strict")


@dataclass(frozen=True)
class Settings:
    """What one run does.

    Attributes:
        optimizer: a name of ``lockstep.spec.optimizers`` and its arguments.
        wrapper: ``none``, or the multitask wrapper, ``default`` or ``strict``.
        presence: probability p with which each task is present in a step.
        steps: optimizer steps of training.
        absence: further steps, in which parity is absent throughout; the state is
            measured after these numbers of them.
        checkpoints: measurements during training, at equal distances; even, so that one
            of them lies at half time.
        batch: images a step.
        hidden: width of the trunk.
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
        for name in ("steps", "checkpoints", "batch", "hidden"):
            value = getattr(self, name)
            counted = isinstance(value, int) and value > 0
            _require(counted, name, "a whole number > 0", value)
        even = self.checkpoints % 2 == 0 and self.steps % self.checkpoints == 0
        got = f"{self.checkpoints} for {self.steps} steps"
        _require(even, "checkpoints", "an even number that divides steps", got)
        within = isinstance(self.presence, int | float) and 0 < self.presence <= 1
        _require(within, "presence", "a probability in (0, 1]", self.presence)
        rising = all(a < b for a, b in pairwise([0, *self.absence]))
        _require(rising, "absence", "rising numbers of steps", self.absence)
        object.__setattr__(self, "presence", float(self.presence))
        object.__setattr__(self, "optimizer", _bound(self.optimizer))

    @property
    def measured_at(self) -> list[int]:
        """The steps after which everything is measured, 0 among them."""
        interval = self.steps // self.checkpoints
        training = [interval * k for k in range(self.checkpoints + 1)]
        return training + [self.steps + k for k in self.absence]


def _bound(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of an optimizer's arguments and check them."""
    arguments = dict(optimizer)
    name = arguments.pop("name", None)
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    return {"name": name, **OPTIMIZERS[name].bind((), arguments)}


def _require(claim: bool, subject: str, expected: str, got: object) -> None:
    if not claim:
        remedy = "change it in the experiment's file"
        raise OutOfRangeError(sentence(subject, expected, str(got), remedy))
