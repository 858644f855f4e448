"""Compare a program's output with the recording: equal, or at which distance."""

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
"""A float32 inside a text, as written by ``repr``."""


@dataclass(frozen=True)
class Apart:
    """A quantity that differs: its line and position, both values, the distance."""

    line: int
    where: str
    recorded: str
    got: str
    ulp: float

    def __str__(self) -> str:
        place = f"line {self.line + 1}, {self.where or 'all of it'}"
        return f"{place}: got {self.got}, recorded {self.recorded}; {self.ulp:g} ULP"


def compare(recorded: Sequence[str], got: Sequence[str]) -> list[Apart]:
    """Return the differences between two outputs of JSON lines, line by line.

    Numbers with a decimal point are float32. Their distance is in ULP of the largest
    magnitude of their quantity, which is a list of numbers. Numbers inside a text are
    compared one by one. Everything else is either equal or infinitely different.
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
    """Split a text into the parts between its decimal numbers, and those numbers."""
    parts = DECIMAL.split(text)
    return parts[::2], [float(number) for number in parts[1::2]]


def _is_float(value: Any) -> bool:
    """Whether a value is a float, or nested lists of equal shape with only floats."""
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
