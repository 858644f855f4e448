"""A mapping of variables, which TensorFlow 2 does not let a dict have as keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from lockstep.tf.base.pairs import as_variable

__all__ = ["VariableMap"]


class VariableMap:
    """Variable -> variable, say; a key may be one of TensorFlow 2, or its ``ref()``.

    It is no ``dict``, for those variables cannot be hashed.
    """

    def __init__(self, entries: Mapping[Any, Any] | None = None) -> None:
        self._values: dict[Any, Any] = {}
        for key, value in (entries or {}).items():
            self[key] = value

    def __getitem__(self, key: Any) -> Any:
        return self._values[as_variable(key).ref()]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._values[as_variable(key).ref()] = value

    def __contains__(self, key: Any) -> bool:
        return as_variable(key).ref() in self._values

    def __iter__(self) -> Iterator[tf.Variable]:
        return (reference.deref() for reference in self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Any) -> Any:
        """Return what is entered for ``key``, or None."""
        return self._values.get(as_variable(key).ref())

    def keys(self) -> list[tf.Variable]:
        """Return the variables that are keys, in the order of ``values``."""
        return list(self)

    def items(self) -> list[tuple[tf.Variable, Any]]:
        """Return pairs of what ``keys`` and ``values`` return."""
        return list(zip(self, self.values(), strict=True))

    def values(self) -> list[Any]:
        """Return what was entered, in the order in which it was entered."""
        return list(self._values.values())
