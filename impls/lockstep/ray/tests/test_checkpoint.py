"""The file of a center is whole or not there, and holds no pickle."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from lockstep.ray import checkpoint

STATE: dict[Any, Any] = {
    "state": {0: {"step": np.array(3.0, np.float32), "m": np.ones((2, 3), np.float16)}},
    "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None, "fused": True}],
    "power": np.float32(0.9),
    "none": [],
    "empty": {},
    "name": "array",
    "bits": [0.1 + 0.2, 5e-324, -0.0, float("inf"), float("nan"), 2**70],
}


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / checkpoint.FILE
    for rounds in (1, 2):
        checkpoint.write(path, {**STATE, "rounds": rounds})
    found = checkpoint.read(path)
    assert repr(found) == repr({**STATE, "rounds": 2})
    assert type(found["power"]) is np.float32
    assert type(found["state"][0]["step"]) is np.ndarray
    assert [p.name for p in tmp_path.iterdir()] == [checkpoint.FILE]


@pytest.mark.parametrize(
    ("leaf", "told"),
    [
        (object(), "object"),
        (np.array(["a", None]), "an array of object"),
        (b"", "byt"),
        ({(1, 2): 3}, "dict"),
    ],
)
def test_what_json_would_change_is_refused(
    leaf: Any, told: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=told):
        checkpoint.write(tmp_path / checkpoint.FILE, {"a": [leaf]})
    assert not list(tmp_path.iterdir())


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_half(file: Any, *_: Any, **__: Any) -> NoReturn:
    file.write(b"half")
    refuse()


FULL = {
    "while it is written": ("numpy.savez", write_half),
    "when it is flushed": ("lockstep.ray.checkpoint.os.fsync", refuse),
    "when it is renamed": ("pathlib.Path.replace", refuse),
}


@pytest.mark.parametrize("moment", FULL)
def test_a_full_disk_leaves_the_checkpoint_before_whole(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / checkpoint.FILE
    checkpoint.write(path, STATE)
    with monkeypatch.context() as patched:
        patched.setattr(*FULL[moment])
        with pytest.raises(OSError, match="No space left"):
            checkpoint.write(path, {"w": np.zeros(4), "rounds": 4})
    assert repr(checkpoint.read(path)) == repr(STATE)
    assert [p.name for p in tmp_path.iterdir()] == [checkpoint.FILE]


class Trap:
    """What a pickle would run."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("a pickle was run",)


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Trap()))


def pickled_array(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, w=np.array([Trap()]), json=np.frombuffer(b'"w"', np.uint8))


def truncated(path: Path) -> None:
    checkpoint.write(path, STATE)
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize("spoil", [pickled, pickled_array, truncated])
def test_what_is_no_checkpoint_is_refused_and_not_run(
    spoil: Any, tmp_path: Path
) -> None:
    path = tmp_path / checkpoint.FILE
    spoil(path)
    with pytest.raises(ValueError):
        checkpoint.read(path)


def test_no_file_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoint.read(tmp_path / checkpoint.FILE)
