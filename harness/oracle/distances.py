"""How far printed values are from recorded ones, in units in the last place (ULP)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from harness.parity.cases import array
from harness.parity.distance import distance

NUMBER = re.compile(r"(-?\d+\.\d+(?:e[-+]?\d+)?)")
NONFINITE = ("nan", "inf", "-inf")


def distances(
    recorded: Any, got: Any, where: str = "", halves: frozenset[str] = frozenset()
) -> Iterator[tuple[float, str]]:
    """Yield the distance of each recorded value, and a sentence about it.

    Floats are compared as float32, also those in a text; all else must be equal. The
    unit is the last place of the largest magnitude in a list of floats.

    Args:
        recorded: decoded JSON.
        got: decoded JSON.
        where: the place of the value.
        halves: names of values that are float16.
    """
    text = f"{where}: got {str(got)[:99]}, recorded {str(recorded)[:99]}"
    if is_float(recorded) and is_float(got):
        dtype = "float16" if where.rpartition("/")[2] in halves else "float32"
        ulp = distance(array(got, dtype), array(recorded, dtype)).ulp
        yield ulp, f"{text}; {ulp:g} ULP"
    elif isinstance(recorded, str) and isinstance(got, str):
        # Every second part is a decimal number.
        parts, others = NUMBER.split(recorded), NUMBER.split(got)
        yield 0.0 if parts[::2] == others[::2] else np.inf, text
        for number, other in zip(parts[1::2], others[1::2], strict=False):
            yield from distances(float(number), float(other), where)
    elif isinstance(recorded, Mapping) and isinstance(got, Mapping):
        if {*recorded} != {*got}:
            yield np.inf, f"{where}: got {sorted(got)}, recorded {sorted(recorded)}"
        for key in filter(got.__contains__, recorded):
            yield from distances(recorded[key], got[key], f"{where}/{key}", halves)
    elif isinstance(recorded, list) and isinstance(got, list):
        if len(recorded) != len(got):
            yield np.inf, text
        for number, pair in enumerate(zip(recorded, got, strict=False)):
            yield from distances(*pair, f"{where}/{number}", halves)
    else:
        same = recorded == got and type(recorded) is type(got)
        yield 0.0 if same else np.inf, text


def is_float(value: Any) -> bool:
    """Whether a value is a float, or nested lists of equal shape with only floats."""
    if not isinstance(value, list):
        return isinstance(value, float) or value in NONFINITE
    return all(map(is_float, value)) and len({np.shape(entry) for entry in value}) < 2
