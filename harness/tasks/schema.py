"""Types and checks of settings, made when an experiment declares them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StringConstraints,
)
from pydantic.dataclasses import dataclass

from harness.declarations.toml_files import wrong
from harness.tasks import own
from lockstep.errors import unknown_name
from lockstep.optimizers import OPTIMIZERS


def require(claim: bool, setting: str, expected: str, got: object) -> None:
    """Raise an error that pydantic reports, in one sentence, unless ``claim`` holds.

    ``setting`` is its dotted path.
    """
    if not claim:
        text = f"expected {expected}, got {got}; change it there."
        raise wrong(text, *setting.split("."))


def bound(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of an optimizer's arguments and check them."""
    if "file" in optimizer:
        return own.described(optimizer)
    arguments = dict(optimizer)
    name = arguments.pop("name", None)
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    return {"name": name, **OPTIMIZERS[name].bind((), arguments)}


Count = Annotated[StrictInt, Field(gt=0)]
Even = Annotated[StrictInt, Field(gt=0, multiple_of=2)]
"""A number of checkpoints of which one is at half time."""
Number = StrictInt | StrictFloat
"""An integer stays one: it is part of a run's id."""
Positive = Annotated[Number, Field(gt=0, lt=math.inf)]
Real = Annotated[float, Field(strict=True, gt=0, lt=math.inf)]
"""A number > 0; an integer becomes a float."""
Optimizer = Annotated[dict[str, Any], AfterValidator(bound)]
"""The name of an optimizer of TensorFlow 1 and all of its arguments."""
Label = Annotated[
    str, StringConstraints(min_length=1, max_length=30, pattern=r"^[^$\n]*$")
]
"""A text that fits beside an axis of a figure; matplotlib reads $ as a formula."""

settings = dataclass(frozen=True, config=ConfigDict(extra="forbid"))
"""Decorator of a task's ``Settings``."""


@settings
class Measured:
    """The settings of a run that is measured before training and at equal distances.

    Attributes:
        steps: optimizer steps of training.
        checkpoints: the number of measurements during training.
    """

    steps: Count
    checkpoints: Count

    def __post_init__(self) -> None:
        got = f"{self.checkpoints} for {self.steps} steps"
        even = self.steps % self.checkpoints == 0
        require(even, "checkpoints", "a number that divides steps", got)

    @property
    def measured_at(self) -> list[int]:
        """The steps after which a run is measured, including 0."""
        return [*range(0, self.steps + 1, self.steps // self.checkpoints)]
