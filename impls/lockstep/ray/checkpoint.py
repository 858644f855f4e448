"""The checkpoint of a center, which is one file and never incomplete.

The file is NumPy's ``.npz`` with the arrays of :mod:`lockstep.ray.tree` and, as bytes,
its JSON. It is written to a temporary file, flushed to the disk and renamed. So a
reader finds the old or the new checkpoint, even if the writer is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.interface import Array
from lockstep.ray.tree import pack, unpack

__all__ = ["FILE", "read", "write"]

FILE = "center.npz"
"""The name of the file in the directory of a center."""

JSON = "json"
"""The key of the JSON bytes; the keys of arrays begin with a number."""


def write(path: Path, tree: Any) -> None:
    """Replace the file by one with this state.

    Raises:
        OSError: the disk is full, or the folder is not writable; the old file is
            unchanged.
        TypeError: a leaf of the state is no array, number or text.
    """
    encoded, arrays = pack(tree)
    arrays[JSON] = np.frombuffer(json.dumps(encoded).encode(), np.uint8)
    # Always the same name, so the file of a killed process is overwritten.
    temporary = path.with_name(f".{path.name}")
    try:
        write_through(temporary, arrays)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_through(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to a new file like ``numpy.savez``, and flush it to the disk."""
    with path.open("wb") as file:
        with zipfile.ZipFile(file, "w") as archive:
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(path: Path) -> Any:
    """Return the state in a file.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: the file is no checkpoint of a center; no code in it was run.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        return unpack(json.loads(arrays.pop(JSON).tobytes()), arrays)
    except FileNotFoundError:
        raise
    except (OSError, EOFError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(str(error)) from error
