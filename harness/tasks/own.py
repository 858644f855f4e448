"""A user's own optimizer: a function in a small Python file.

``make(parameters, learning_rate, **settings)`` returns an optimizer of the backend. A
setting ``{ file = "mine.py:make", ... }`` names it; relative paths start at the root of
the checkout.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from lockstep.errors import sentence, unknown_name

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = ("name", "file", "text")
"""The entries of a setting that are not passed to the function."""


def fault(place: str, expected: str, got: str, remedy: str) -> HarnessError:
    """Return the error about a file."""
    return HarnessError(sentence(f"optimizer {place}", expected, got, remedy))


def located(place: str) -> tuple[Path, str]:
    """Return the path and the function of ``mine.py:make``, without importing it.

    Raises:
        HarnessError: there is no such file or function, or it is no Python.
    """
    file, colon, function = place.rpartition(":")
    path = ROOT / file
    if not colon or not path.is_file():
        got = f"no file {file}" if colon else "no function"
        raise fault(place, "a file and a function, such as mine.py:make", got, "add it")
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, ValueError) as error:
        raise fault(place, "a file of Python", str(error), "correct it") from error
    names = [node.name for node in tree.body if hasattr(node, "name")]
    if function not in names:
        raise HarnessError(str(unknown_name(f"function of {file}", function, names)))
    return path, function


def described(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an own optimizer's settings with its name and the digest of its text.

    The settings of a record have both already, and its file may be gone.
    """
    if "text" in optimizer:
        return dict(optimizer)
    path, function = located(optimizer["file"])
    name = f"{path.name}:{function}"
    return {"name": name, "text": text_of(path), **optimizer}


def text_of(path: Path) -> str:
    """Return the digest of a file's text: 12 hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def load(place: str) -> Callable[..., Any]:
    """Import the function.

    Raises:
        HarnessError: the file cannot be imported.
    """
    path, function = located(place)
    spec = importlib.util.spec_from_file_location(f"own_{text_of(path)}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        raise fault(place, "a file that can be imported", got, "correct it") from error
    made: Callable[..., Any] = getattr(module, function)
    return made


def make(optimizer: Mapping[str, Any], parameters: Iterable[Any], kind: type) -> Any:
    """Return the optimizer that the function makes of its settings.

    Raises:
        HarnessError: the file has changed since its runs were declared, or the function
            raises or returns something else than a ``kind``.
    """
    place = optimizer["file"]
    if text_of(located(place)[0]) != optimizer["text"]:
        got, remedy = "another text", "start the runs again"
        raise fault(place, "the text that the runs were declared with", got, remedy)
    settings = {key: value for key, value in optimizer.items() if key not in OURS}
    expected = f"an optimizer of {kind.__module__.partition('.')[0]}"
    function = load(place)
    try:
        made = function(list(parameters), **settings)
    except Exception as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        raise fault(place, expected, got, "correct the function") from error
    if not isinstance(made, kind):
        raise fault(place, expected, f"{made!r:.80}", "return one")
    return made


def relative(place: str) -> str:
    """Return ``mine.py:make``, as seen from the working directory, from the root."""
    file, colon, function = place.rpartition(":")
    return f"{os.path.relpath(file, ROOT)}{colon}{function}" if colon else place


def keep(place: str, folder: Path) -> None:
    """Copy the file beside the records of its runs."""
    path = located(place)[0]
    kept = folder / "optimizers" / f"{path.stem}-{text_of(path)}.py"
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, kept)
