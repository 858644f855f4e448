"""Range checks of numeric arguments, with their error messages."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

from lockstep.errors import OutOfRangeError, UnknownArgumentError, sentence

FLOATS = ("float16", "bfloat16", "float32", "float64")
"""The names of the floating-point dtypes."""

LARGEST_LIMIT = 2.0**126
"""The largest norm whose reciprocal is not subnormal in float32."""
LEAST_SCALE, LARGEST_SCALE = 2.0**-149, (2 - 2.0**-23) * 2.0**127
"""The smallest positive float32 number, and the largest."""
HELD = "> 0, finite in float32"
CHOOSE = "choose such a value"
"""The remedy for a required argument."""


def require(
    owner: str,
    name: str,
    value: Any,
    fine: bool,
    expected: str,
    remedy: str = f"{CHOOSE}, or leave it out",
) -> None:
    """Raise an ``OutOfRangeError`` for ``value`` unless ``fine``."""
    if not fine:
        text = sentence(f"{owner}: {name}", expected, repr(value), remedy)
        raise OutOfRangeError(text)


def check_integer(owner: str, name: str, value: Any, least: int = 1) -> None:
    """Raise unless a number is an integer that is large enough."""
    try:
        fine = operator.index(value) >= least and not isinstance(value, bool)
    except TypeError:
        fine = False
    require(owner, name, value, fine, f"an integer >= {least}", CHOOSE)


def is_positive(value: float) -> bool:
    """Return whether a number is finite and > 0."""
    return 0 < value < math.inf


def is_scale(value: float) -> bool:
    """Return whether a number is finite and > 0 in float32."""
    return LEAST_SCALE <= value <= LARGEST_SCALE


def number_of(value: Any) -> float:
    """Return a number of any kind, such as a 0-d array, as a float.

    Anything else gives NaN: a bool, a text, several numbers, or a too large integer.
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
    """Return a copy of ``arguments`` with ``lr`` renamed to ``learning_rate``."""
    renamed = dict(arguments)
    if "lr" in renamed:
        if "learning_rate" in renamed:
            expected, got = "one rate", "both learning_rate and lr"
            remedy = "leave one of them out"
            raise UnknownArgumentError(sentence(owner, expected, got, remedy))
        renamed["learning_rate"] = renamed.pop("lr")
    return renamed


def check_norm_limit(owner: str, name: str, limit: Any, remedy: str = CHOOSE) -> None:
    """Raise unless ``limit`` is a norm to which float32 gradients can be clipped.

    Quirk ``clip_limit``.
    """
    number = number_of(limit)
    require(owner, name, limit, is_positive(number), "a finite number > 0", remedy)
    expected = "a number from 2**-126 to 2**126, which float32 can divide by"
    fine = 1 / LARGEST_LIMIT <= number <= LARGEST_LIMIT
    require(owner, name, limit, fine, expected, "leave clipping out to never clip")


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of any framework; a name is returned as it is."""
    named = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return str(named or dtype).removeprefix("torch.")
