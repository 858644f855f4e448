"""A mapping between variables, which TensorFlow 2 does not let a dict have as keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lockstep.tf.pairs import as_variable

__all__ = ["VariableMap"]


class VariableMap:
    """Variable -> variable; a key may be a variable of TensorFlow 2, or its ``ref()``.

    It is no ``dict``, for those variables cannot be hashed.
    """

    def __init__(self) -> None:
        self._values: dict[Any, tf.Variable] = {}

    def __getitem__(self, key: Any) -> tf.Variable:
        return self._values[as_variable(key).ref()]

    def __setitem__(self, key: Any, value: tf.Variable) -> None:
        self._values[as_variable(key).ref()] = value

    def __contains__(self, key: Any) -> bool:
        return as_variable(key).ref() in self._values

    def __iter__(self) -> Iterator[tf.Variable]:
        return (reference.deref() for reference in self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Any) -> tf.Variable | None:
        """Return the variable of ``key``, or None."""
        return self._values.get(as_variable(key).ref())

    def values(self) -> list[tf.Variable]:
        """Return the variables in the order in which they were entered."""
        return list(self._values.values())
