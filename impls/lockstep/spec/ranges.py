"""Numbers in their ranges, or the sentence that says what was expected."""

from __future__ import annotations

import math
from typing import Any

from lockstep.spec.errors import OutOfRangeError, sentence

__all__ = ["is_positive", "require"]


def require(owner: str, name: str, value: Any, fine: bool, expected: str) -> None:
    """Raise an ``OutOfRangeError`` about ``value`` unless it is fine."""
    if not fine:
        remedy = "choose such a value, or leave it out"
        text = sentence(f"{owner}: {name}", expected, repr(value), remedy)
        raise OutOfRangeError(text)


def is_positive(value: float) -> bool:
    """Say whether a number is above zero and finite; NaN is not."""
    return 0 < value < math.inf
