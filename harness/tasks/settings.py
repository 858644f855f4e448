"""Checks of the settings of all tasks, made when an experiment declares them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.tasks import own
from lockstep.errors import OutOfRangeError, sentence, unknown_name
from lockstep.optimizers import OPTIMIZERS

__all__ = [
    "bound",
    "require",
    "require_counts",
    "require_label",
    "require_number",
    "require_spread",
    "spread",
]

LONGEST_LABEL = 30
"""The number of characters that fit beside an axis of a figure."""


def require(claim: bool, subject: str, expected: str, got: object) -> None:
    """Raise OutOfRangeError, in one sentence, unless ``claim`` holds."""
    if not claim:
        remedy = "change it in the experiment's file"
        raise OutOfRangeError(sentence(subject, expected, str(got), remedy))


def require_counts(settings: object, *names: str) -> None:
    """Raise OutOfRangeError unless these settings are whole numbers > 0."""
    for name in names:
        value = getattr(settings, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        counted = whole and value > 0
        require(counted, name, "a whole number > 0", value)


def require_number(settings: object, *names: str) -> None:
    """Raise OutOfRangeError unless these settings are finite numbers > 0."""
    for name in names:
        value = getattr(settings, name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        positive = number and 0 < value < math.inf
        require(positive, name, "a finite number > 0", value)


def require_label(subject: str, label: object) -> None:
    """Raise OutOfRangeError unless a label is usable in tables and figures."""
    fits = isinstance(label, str) and 0 < len(label.strip()) <= LONGEST_LABEL
    # matplotlib reads a dollar sign as the start of a formula.
    plain = fits and str(label).isprintable() and "$" not in str(label)
    expected = f"a text of 1 to {LONGEST_LABEL} characters, without $ or line breaks"
    require(plain, subject, expected, repr(label))


def require_spread(checkpoints: int, steps: int) -> None:
    """Raise OutOfRangeError unless checkpoints are possible at equal distances."""
    got = f"{checkpoints} for {steps} steps"
    even = steps % checkpoints == 0
    require(even, "checkpoints", "a number that divides steps", got)


def spread(checkpoints: int, steps: int) -> list[int]:
    """Return the steps of checkpoints at equal distances, including 0."""
    interval = steps // checkpoints
    return [interval * k for k in range(checkpoints + 1)]


def bound(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of an optimizer's arguments and check them."""
    if "file" in optimizer:
        return own.described(optimizer)
    arguments = dict(optimizer)
    name = arguments.pop("name", None)
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    return {"name": name, **OPTIMIZERS[name].bind((), arguments)}
