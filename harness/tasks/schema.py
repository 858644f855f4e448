"""Types and checks of settings, made when an experiment declares them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StrictFloat, StrictInt
from pydantic.dataclasses import dataclass

from harness.tasks import own
from lockstep.errors import OutOfRangeError, sentence, unknown_name
from lockstep.optimizers import OPTIMIZERS

LONGEST_LABEL = 30
"""The number of characters that fit beside an axis of a figure."""


def require(claim: bool, subject: str, expected: str, got: object) -> None:
    """Raise OutOfRangeError, in one sentence, unless ``claim`` holds."""
    if not claim:
        remedy = "change it in the experiment's file"
        raise OutOfRangeError(sentence(subject, expected, str(got), remedy))


def bound(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of an optimizer's arguments and check them."""
    if "file" in optimizer:
        return own.described(optimizer)
    arguments = dict(optimizer)
    name = arguments.pop("name", None)
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    return {"name": name, **OPTIMIZERS[name].bind((), arguments)}


def usable(label: str) -> str:
    """Return a label; raise OutOfRangeError unless it fits in tables and figures."""
    # matplotlib reads a dollar sign as the start of a formula.
    plain = label.isprintable() and "$" not in label
    fits = plain and 0 < len(label.strip()) <= LONGEST_LABEL
    expected = f"a text of 1 to {LONGEST_LABEL} characters, without $ or line breaks"
    require(fits, "label", expected, repr(label))
    return label


Count = Annotated[StrictInt, Field(gt=0)]
Number = StrictInt | StrictFloat
"""An integer stays one: it is part of a run's id."""
Positive = Annotated[Number, Field(gt=0, lt=math.inf)]
Real = Annotated[float, Field(strict=True, gt=0, lt=math.inf)]
"""A number > 0; an integer becomes a float."""
Optimizer = Annotated[dict[str, Any], AfterValidator(bound)]
"""The name of an optimizer of TensorFlow 1 and all of its arguments."""
Label = Annotated[str, AfterValidator(usable)]

settings = dataclass(frozen=True, config=ConfigDict(extra="forbid"))
"""Decorator of a task's ``Settings``."""


def require_spread(checkpoints: int, steps: int) -> None:
    """Raise OutOfRangeError unless checkpoints are possible at equal distances."""
    got = f"{checkpoints} for {steps} steps"
    even = steps % checkpoints == 0
    require(even, "checkpoints", "a number that divides steps", got)


def spread(checkpoints: int, steps: int) -> list[int]:
    """Return the steps of checkpoints at equal distances, including 0."""
    interval = steps // checkpoints
    return [interval * k for k in range(checkpoints + 1)]
