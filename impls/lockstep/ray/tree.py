"""Nested state as JSON and arrays, so that no file of a center contains a pickle.

JSON has no tuples and only strings as keys, so both are encoded: a tuple is
``{"tuple": [...]}``, a mapping ``{"dict": [[key, value], ...]}``. An array is
``{"array": KEY}``, a NumPy number ``{"number": KEY}``; KEY is the key of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lockstep.interface import Array

__all__ = ["map_leaves", "pack", "unpack"]

PLAIN = (bool, int, float, str, type(None))


def pack(tree: Any) -> tuple[Any, dict[str, Array]]:
    """Return a tree's JSON part, and its arrays by key.

    Raises:
        TypeError: a leaf is no array, number, text or None; the message is its type.
    """
    arrays: dict[str, Array] = {}
    return encode(tree, "", arrays), arrays


def encode(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """Return a value encoded for JSON; add arrays to ``arrays``."""
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufc":
            raise TypeError(f"an array of {value.dtype}")
        key = f"{len(arrays)}{path}"
        arrays[key] = np.asarray(value)
        return {"array" if isinstance(value, np.ndarray) else "number": key}
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, list | tuple):
        items = [encode(v, f"{path}/{k}", arrays) for k, v in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        pairs = [[k, encode(v, f"{path}/{k}", arrays)] for k, v in value.items()]
        if all(isinstance(k, int | str) for k in value):
            return {"dict": pairs}
    raise TypeError(type(value).__name__)


def unpack(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Return the tree that :func:`pack` encoded."""
    if isinstance(value, list):
        return [unpack(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inside),) = value.items()
    if kind == "dict":
        return {key: unpack(item, arrays) for key, item in inside}
    if kind == "tuple":
        return tuple(unpack(item, arrays) for item in inside)
    return arrays[inside] if kind == "array" else arrays[inside][()]


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of the same structure with ``function`` applied to each leaf."""
    if isinstance(tree, Mapping):
        return {key: map_leaves(function, value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [map_leaves(function, value) for value in tree]
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, value) for value in tree)
    return function(tree)
