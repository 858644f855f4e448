"""Golden files as in FORMAT.md, read without the rest of the harness."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Case", "Variable", "array", "encoded", "read_cases"]


class Variable:
    """A variable of a case."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.name: str = content["name"]
        self.dtype = np.dtype(content["dtype"])
        self.value = array(content["value"], self.dtype, content["shape"])


class Case:
    """One recorded case."""

    def __init__(self, family: str, content: dict[str, Any]) -> None:
        self.family = family
        self.id: str = content["id"]
        self.kind: str = content["kind"]
        self.source: str = content["source"]
        self.inputs: dict[str, Any] = content["inputs"]
        self.expected: dict[str, Any] = content["expected"]

    @property
    def variables(self) -> list[Variable]:
        """The variables with their initial values."""
        return [Variable(entry) for entry in self.inputs["variables"]]


def read_cases(folder: Path, families: list[str]) -> Iterator[Case]:
    """Yield the cases of all golden files in ``folder``, or of some families."""
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text("utf-8"))
        if not families or content["family"] in families:
            for case in content["cases"]:
                yield Case(content["family"], case)


def array(value: Any, dtype: Any, shape: Any = None) -> Any:
    """Decode a nested list: parse as doubles, then round once to ``dtype``."""
    dtype = np.dtype(dtype)
    wide = np.float64 if dtype.kind == "f" else dtype
    with np.errstate(over="ignore"):
        decoded = np.array(_numbers(value), wide).astype(dtype)
    return decoded if shape is None else decoded.reshape(shape)


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return float(value) if isinstance(value, str) else value


def encoded(value: Any) -> Any:
    """Return a result in the form of a golden file: the inverse of :func:`array`.

    Each number becomes the shortest decimal that gives the same value in its own dtype.
    NaN and infinity become strings. Operations have no value and are removed.
    """
    if isinstance(value, dict):
        return {key: encoded(entry) for key, entry in value.items() if key}
    if isinstance(value, list):
        return [encoded(entry) for entry in value]
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    values = np.asarray(value)
    if values.dtype.kind != "f":
        return values.tolist()
    cells = np.empty(values.size, object)
    cells[:] = [_decimal(number) for number in values.ravel()]
    return cells.reshape(values.shape).tolist()


def _decimal(value: Any) -> Any:
    number = float(str(value))
    return number if np.isfinite(number) else str(number)
