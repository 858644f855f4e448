"""Cases and numbers in the form of FORMAT.md, read without the rest of the harness."""

from __future__ import annotations

from typing import Any

import numpy as np

ASSUMED: dict[str, Any] = {
    "optimizer": {"name": "GradientDescent", "args": {"learning_rate": 0.1}},
    "variables": [{"name": "w", "dtype": "float32", "shape": [2], "value": [1.0, 2.0]}],
}
"""Inputs of error cases that give none. Each gradient is then [1, 1]."""


class Variable:
    """A variable of a case."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.name: str = content["name"]
        self.dtype = np.dtype(content["dtype"])
        self.value = array(content["value"], self.dtype, content["shape"])


class Case:
    """A case: what it does, and its inputs."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.kind: str = content["kind"]
        self.inputs: dict[str, Any] = {**ASSUMED, **content["inputs"]}
        ones = [[[1.0, 1.0]] * len(self.inputs["variables"])]
        self.inputs.setdefault("gradients", ones)

    @property
    def variables(self) -> list[Variable]:
        """The variables with their initial values."""
        return [Variable(entry) for entry in self.inputs["variables"]]


def array(value: Any, dtype: Any, shape: Any = None) -> Any:
    """Decode a nested list: parse as doubles, then round once to ``dtype``."""
    with np.errstate(over="ignore"):
        # NumPy parses the texts "nan" and "inf", too.
        decoded = np.array(value, object).astype(np.float64).astype(dtype)
    return decoded if shape is None else decoded.reshape(shape)


def encoded(value: Any) -> Any:
    """Return a result in the form of a golden file: the inverse of :func:`array`.

    Each number becomes the shortest decimal that gives the same value in its own dtype.
    NaN and infinity become strings. Sparse gradients become dictionaries.
    """
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: encoded(entry) for key, entry in value.items()}
    if isinstance(value, list) or np.ndim(value):
        return [encoded(entry) for entry in value]
    if isinstance(value, np.ndarray):
        value = value[()]
    if isinstance(value, (float, np.floating)):
        number = float(str(value))
        return number if np.isfinite(number) else str(number)
    return value.item() if isinstance(value, np.generic) else value
