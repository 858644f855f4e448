"""Comparison of a file's state with the variables that it is loaded into."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

__all__ = ["fits", "values_in"]


def values_in(store: Any) -> list[np.ndarray] | None:
    """Return the values of a store of Keras in the order of their numbers.

    None: the state of an optimizer that saves it by other names.
    """
    numbers = [str(k) for k in range(len(store.keys()))]
    if set(store.keys()) != set(numbers):
        return None
    return [np.asarray(store[number]) for number in numbers]


def fits(value: np.ndarray, variable: Any) -> bool:
    """Whether a value has the shape and dtype of a variable.

    Files have numbers instead of names, so this is what tells a scale from a count.
    """
    dtype = keras.backend.standardize_dtype(value.dtype)
    return value.shape == tuple(variable.shape) and dtype == variable.dtype
