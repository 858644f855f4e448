"""A mapping whose keys are variables, which TensorFlow 2 does not allow in a dict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from lockstep.tf.base.pairs import as_variable

__all__ = ["VariableMap"]


class VariableMap:
    """A mapping from variables to any values; a key may also be a ``ref()``.

    It is no ``dict``, because TensorFlow 2's variables are not hashable.
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
        """Return the value of ``key``, or None."""
        return self._values.get(as_variable(key).ref())

    def keys(self) -> list[tf.Variable]:
        """Return the variables, in the order of ``values``."""
        return list(self)

    def items(self) -> list[tuple[tf.Variable, Any]]:
        """Return pairs of a variable and its value."""
        return list(zip(self, self.values(), strict=True))

    def values(self) -> list[Any]:
        """Return the values, in the order of their insertion."""
        return list(self._values.values())
