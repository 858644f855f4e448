"""Numbers in their ranges, or the sentence that says what was expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lockstep.messages.errors import OutOfRangeError, UnknownArgumentError, sentence

__all__ = [
    "CHOOSE",
    "FLOATS",
    "HELD",
    "LARGEST_LIMIT",
    "check_norm_limit",
    "dtype_name",
    "is_positive",
    "is_scale",
    "number_of",
    "require",
    "with_full_name",
]

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""The names of the dtypes that hold fractions."""

LARGEST_LIMIT = 2.0**126
"""The largest norm that float32 can divide by: of more the reciprocal is subnormal."""
LEAST_SCALE, LARGEST_SCALE = 2.0**-149, (2 - 2.0**-23) * 2.0**127
"""The smallest number of float32 above zero, and the largest."""
HELD = "> 0, finite in float32"
CHOOSE = "choose such a value"
"""The remedy for an argument that has to be given."""


def require(
    owner: str,
    name: str,
    value: Any,
    fine: bool,
    expected: str,
    remedy: str = f"{CHOOSE}, or leave it out",
) -> None:
    """Raise an ``OutOfRangeError`` about ``value`` unless it is fine."""
    if not fine:
        text = sentence(f"{owner}: {name}", expected, repr(value), remedy)
        raise OutOfRangeError(text)


def is_positive(value: float) -> bool:
    """Say whether a number is above zero and finite; NaN is not."""
    return 0 < value < math.inf


def is_scale(value: float) -> bool:
    """Say whether float32 holds a number above zero and below infinity."""
    return LEAST_SCALE <= value <= LARGEST_SCALE


def number_of(value: Any) -> float:
    """Return one number of any kind, such as a 0-d array, as a float.

    What is none is NaN: a bool, a text, several numbers, or too large a number.
    """
    kind = str(getattr(value, "dtype", type(value).__name__))
    try:
        several = len(getattr(value, "shape", ())) > 0
        if isinstance(value, str | bytes) or "bool" in kind or several:
            return math.nan
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def with_full_name(owner: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of arguments in which ``lr`` is called ``learning_rate``."""
    renamed = dict(arguments)
    if "lr" in renamed:
        if "learning_rate" in renamed:
            expected, got = "one rate", "both learning_rate and lr"
            remedy = "leave one of them out"
            raise UnknownArgumentError(sentence(owner, expected, got, remedy))
        renamed["learning_rate"] = renamed.pop("lr")
    return renamed


def check_norm_limit(owner: str, name: str, limit: Any, remedy: str = CHOOSE) -> None:
    """Raise unless gradients can be clipped to the norm ``limit`` in float32.

    Quirk ``clip_limit``.
    """
    number = number_of(limit)
    require(owner, name, limit, is_positive(number), "a finite number > 0", remedy)
    expected = "a number from 2**-126 to 2**126, which float32 can divide by"
    fine = 1 / LARGEST_LIMIT <= number <= LARGEST_LIMIT
    require(owner, name, limit, fine, expected, "leave clipping out to never clip")


def dtype_name(dtype: Any) -> str:
    """Return the name of any framework's dtype, or of its name."""
    named = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return str(named or dtype).removeprefix("torch.")
