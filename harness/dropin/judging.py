"""What a program printed beside what was recorded: equal, or how far apart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from harness.parity.distance import distance

__all__ = ["Apart", "compare", "largest"]

DECIMAL = re.compile(r"(-?\d+\.\d+(?:e[-+]?\d+)?)")
"""A float32 inside a text, as ``repr`` writes it."""


@dataclass(frozen=True)
class Apart:
    """A quantity that differs: in which line, where in it, both values, how far."""

    line: int
    where: str
    recorded: str
    got: str
    ulp: float

    def __str__(self) -> str:
        place = f"line {self.line + 1}, {self.where or 'all of it'}"
        return f"{place}: got {self.got}, recorded {self.recorded}; {self.ulp:g} ULP"


def compare(recorded: Sequence[str], got: Sequence[str]) -> list[Apart]:
    """Return what differs between two programs' lines of JSON, line by line.

    Numbers with a point are float32 and are apart by so many ULP of the largest
    magnitude of their quantity, a list of numbers; those inside a text are compared one
    by one. All else is equal or infinitely far.
    """
    differences: list[Apart] = []
    for number, (expected, line) in enumerate(zip_longest(recorded, got)):
        if expected is None or line is None:
            texts = [(text or "no line")[:80] for text in (expected, line)]
            differences.append(Apart(number, "", texts[0], texts[1], float(np.inf)))
            continue
        for where, one, other, ulp in _apart(
            json.loads(expected), json.loads(line), ""
        ):
            differences.append(Apart(number, where, _text(one), _text(other), ulp))
    return differences


def largest(apart: Sequence[Apart]) -> float:
    """Return the largest distance."""
    return max((one.ulp for one in apart), default=0.0)


def _apart(
    recorded: Any, got: Any, where: str
) -> Iterator[tuple[str, Any, Any, float]]:
    if isinstance(recorded, dict) and isinstance(got, dict):
        for key in {**recorded, **got}:
            pair = recorded.get(key, "nothing"), got.get(key, "nothing")
            yield from _apart(*pair, f"{where}/{key}".lstrip("/"))
    elif _is_float(recorded) and _is_float(got):
        both = np.array(recorded, np.float32), np.array(got, np.float32)
        ulp = distance(both[1], both[0]).ulp
        if ulp:
            yield where, recorded, got, ulp
    elif isinstance(recorded, str) and isinstance(got, str) and recorded != got:
        (texts, numbers), (other_texts, others) = _parted(recorded), _parted(got)
        if texts != other_texts:
            yield where, recorded, got, float(np.inf)
        for number, other in zip(numbers, others, strict=False):
            yield from _apart(number, other, where)
    elif _is_list(recorded, got):
        for position, pair in enumerate(zip(recorded, got, strict=True)):
            yield from _apart(*pair, f"{where}/{position}".lstrip("/"))
    elif recorded != got or type(recorded) is not type(got):
        yield where, recorded, got, float(np.inf)


def _parted(text: str) -> tuple[list[str], list[float]]:
    """Part a text into what stands between its decimal numbers, and those numbers."""
    parts = DECIMAL.split(text)
    return parts[::2], [float(number) for number in parts[1::2]]


def _is_float(value: Any) -> bool:
    """Whether a value is a float, or nested lists of one shape with floats only."""
    if isinstance(value, float):
        return True
    if not isinstance(value, list) or not value:
        return False
    return all(map(_is_float, value)) and len({np.shape(entry) for entry in value}) == 1


def _is_list(recorded: Any, got: Any) -> bool:
    both = isinstance(recorded, list) and isinstance(got, list)
    return both and len(recorded) == len(got)


def _text(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
