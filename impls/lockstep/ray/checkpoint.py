"""The checkpoint of a center, which is one file and never incomplete.

The file is NumPy's ``.npz``: the arrays of the state, and its structure as the bytes of
a JSON text, so that no pickle is in it. JSON has no tuples and only strings as keys, so
a tuple is ``{"tuple": [...]}``, a mapping ``{"dict": [[key, value], ...]}``, an array
``{"array": KEY}`` and a NumPy number ``{"number": KEY}``.

It is written to a temporary file, flushed to the disk and renamed. So a reader finds
the old or the new checkpoint, even if the writer is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.interface import Array

FILE = "center.npz"
"""The name of the file in the directory of a center."""

JSON = "json"
"""The key of the JSON bytes; the keys of arrays are numbers."""


def write(path: Path, tree: Any) -> None:
    """Replace the file by one with this state; after an OSError the old one is there.

    A TypeError is a leaf that is no array, number or text.
    """
    encoded, arrays = pack(tree)
    arrays[JSON] = np.frombuffer(json.dumps(encoded).encode(), np.uint8)
    # Always the same name, so the file of a killed process is overwritten.
    temporary = path.with_name(f".{path.name}")
    try:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    # The new name must be on the disk, too, where the system can flush a folder.
    with contextlib.suppress(OSError):
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(path: Path) -> Any:
    """Return the state in a file; a ValueError if it is no checkpoint of a center."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        return unpack(json.loads(arrays.pop(JSON).tobytes()), arrays)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(str(error)) from error


def pack(tree: Any) -> tuple[Any, dict[str, Array]]:
    """Return a tree's JSON part, and its arrays by key."""
    arrays: dict[str, Array] = {}

    def encode(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            if value.dtype.kind not in "biufc":
                raise TypeError(f"an array of {value.dtype}")
            key = str(len(arrays))
            arrays[key] = np.asarray(value)
            return {"array" if isinstance(value, np.ndarray) else "number": key}
        if isinstance(value, bool | int | float | str | None):
            return value
        if isinstance(value, list):
            return [encode(item) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [encode(item) for item in value]}
        if isinstance(value, Mapping) and all(isinstance(k, int | str) for k in value):
            return {"dict": [[key, encode(item)] for key, item in value.items()]}
        raise TypeError(type(value).__name__)

    return encode(tree), arrays


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
