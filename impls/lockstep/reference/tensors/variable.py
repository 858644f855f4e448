"""A variable of the reference: a name and an array that is replaced at each update."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.interface import Array

__all__ = ["Variable"]


class Variable:
    """A named array whose value can be replaced; its dtype and shape never change.

    Args:
        name: the variable's name, used in reports and errors.
        value: initial value, any shape; float16, float32, float64 or an integer.
        dtype: dtype of the value; None keeps the value's own.
    """

    def __init__(
        self, name: str, value: npt.ArrayLike, dtype: npt.DTypeLike | None = None
    ) -> None:
        self.name = name
        self.value: Array = np.array(value, dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the value."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value."""
        return self.value.shape

    def __repr__(self) -> str:
        return f"Variable({self.name!r}, {self.value!r})"
