"""A user's own optimizer: a function in a small Python file.

``make(parameters, learning_rate, **settings)`` returns an optimizer of the backend. A
setting ``{ file = "mine.py:make", ... }`` names it; relative paths start at the root of
the checkout.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.errors import HarnessError
from lockstep.errors import sentence, unknown_name
from lockstep.optimizers import OPTIMIZERS

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = ("name", "file", "text")
"""The entries of a setting that are not passed to the function."""


def fault(place: str, expected: str, got: object, remedy: str) -> HarnessError:
    """Return the error about a file; of an exception it names the first line."""
    if isinstance(got, Exception):
        got = f"{type(got).__name__}: {got}".splitlines()[0]
    return HarnessError(sentence(f"optimizer {place}", expected, str(got), remedy))


def path_of(place: str) -> Path:
    """Return the path of ``mine.py:make``.

    Raises:
        HarnessError: there is no such file.
    """
    path = ROOT / place.rpartition(":")[0]
    if not path.is_file():
        expected = "a file and a function, such as mine.py:make"
        raise fault(place, expected, "no such file", "add it")
    return path


def text_of(path: Path) -> str:
    """Return the digest of a file's text: 12 hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def described(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an own optimizer's settings with its name and the digest of its text.

    The settings of a record have both already, and its file may be gone.
    """
    if "text" in optimizer:
        return dict(optimizer)
    place = optimizer["file"]
    path, function = path_of(place), place.rpartition(":")[2]
    return {"name": f"{path.name}:{function}", "text": text_of(path), **optimizer}


def load(place: str) -> Callable[..., Any]:
    """Import the function.

    Raises:
        HarnessError: the file cannot be imported, or has no such function.
    """
    path, name = path_of(place), place.rpartition(":")[2]
    spec = importlib.util.spec_from_file_location(f"own_{text_of(path)}", path)
    if spec is None or spec.loader is None:
        raise fault(place, "a file of Python", path.name, "name it mine.py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise fault(
            place, "a file that can be imported", error, "correct it"
        ) from error
    functions: dict[str, Callable[..., Any]]
    functions = {k: v for k, v in vars(module).items() if callable(v)}
    if name not in functions:
        kind = f"function of {path.name}"
        raise HarnessError(str(unknown_name(kind, name, functions)))
    return functions[name]


def optimizer_of(
    optimizer: Mapping[str, Any],
    names: ModuleType,
    parameters: Iterable[Any] = (),
    kind: type | None = None,
) -> Any:
    """Return the optimizer of a run: one of ``names``, or that of a user's file.

    Args:
        optimizer: its setting.
        names: the backend, such as ``lockstep.pytorch``.
        kind: the framework's class of optimizers; None if own ones cannot be used.

    Raises:
        HarnessError: a user's file makes no optimizer.
    """
    if "file" in optimizer:
        if kind is None:
            raise HarnessError(
                "optimizer: expected a name on TensorFlow, got a file; run it on "
                "pytorch or keras3."
            )
        return make(optimizer, parameters, kind)
    arguments = dict(optimizer)
    built = getattr(names, OPTIMIZERS[arguments.pop("name")].class_name)
    if names.__name__ == "lockstep.pytorch":
        return built(parameters, **arguments)
    return built(**arguments)


def make(optimizer: Mapping[str, Any], parameters: Iterable[Any], kind: type) -> Any:
    """Return the optimizer that the function makes of its settings.

    Raises:
        HarnessError: the file has changed since its runs were declared, or the function
            raises or returns something else than a ``kind``.
    """
    place = optimizer["file"]
    if text_of(path_of(place)) != optimizer["text"]:
        expected, remedy = "the text that the runs were declared with", "start again"
        raise fault(place, expected, "another text", remedy)
    function = load(place)
    settings = {key: value for key, value in optimizer.items() if key not in OURS}
    expected = f"an optimizer of {kind.__module__.partition('.')[0]}"
    try:
        made = function(list(parameters), **settings)
    except Exception as error:
        raise fault(place, expected, error, "correct the function") from error
    if not isinstance(made, kind):
        raise fault(place, expected, f"{made!r:.80}", "return one")
    return made


def relative(place: str) -> str:
    """Return ``mine.py:make``, as seen from the working directory, from the root."""
    file, colon, function = place.rpartition(":")
    return f"{os.path.relpath(file, ROOT)}{colon}{function}" if colon else place


def keep(place: str, folder: Path) -> None:
    """Copy the file beside the records of its runs."""
    path = path_of(place)
    kept = folder / "optimizers" / f"{path.stem}-{text_of(path)}.py"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, kept)
