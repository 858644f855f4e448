"""Public signatures are those of ``signatures.json``, so that a diff shows each change.

A wrapper that the file does not have is not released yet, and free to change. If a
change is meant, and before a release, write the file anew::

    PYTHONPATH=impls:. python impls/lockstep/tests/test_signatures.py
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lockstep import errors, registry
from lockstep.pipeline import WRAPPERS
from lockstep.policies import POLICIES

FILE = Path(__file__).parent / "signatures.json"
# Modules and addresses, which change when something is moved.
PLACE = re.compile(r" at 0x[0-9a-fA-F]+|\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")


def signatures_of(backend: str) -> dict[str, Any]:
    """Return ``default`` -> public name -> its signature, and what differs, ``strict``.

    A default name that strict does not have is None there.
    """
    default = signatures_in(registry.load(backend))
    if not registry.find(backend).has_strict:
        return {"default": default}
    strict = signatures_in(registry.load(backend, strict=True))
    names = sorted({*default, *strict})
    differ = {n: strict.get(n) for n in names if strict.get(n) != default.get(n)}
    return {"default": default, "strict": differ}


def signatures_in(module: ModuleType) -> dict[str, str]:
    """Return public name -> its signature."""
    names = sorted(module.__all__)
    return dict(pair for name in names for pair in members(name, getattr(module, name)))


def signatures_of_errors() -> dict[str, str]:
    """Return the name of each error -> the classes by which it can be caught."""
    objects = [o for o in vars(errors).values() if isinstance(o, type)]
    classes = [c for c in objects if issubclass(c, Exception)]
    return {c.__name__: ", ".join(b.__name__ for b in c.__mro__[1:-2]) for c in classes}


def members(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield (name, signature) of a public object and of its own public members."""
    if isinstance(value, ModuleType):
        for each in POLICIES:
            yield from members(f"{name}.{each}", getattr(value, each))
    elif isinstance(value, type):
        foreign = next(c for c in value.__mro__ if not is_ours(c))
        yield name, f"class{signature(value)}, a {foreign.__name__}"
        yield from methods(name, value)
    elif callable(value):
        yield name, signature(value)
    elif isinstance(value, Mapping):
        listed = (f"{key}: {getattr(v, '__name__', v)}" for key, v in value.items())
        yield name, f"mapping {', '.join(listed)}"
    else:
        yield name, repr(value)


def methods(name: str, cls: type) -> Iterator[tuple[str, str]]:
    ours = {key for c in cls.__mro__ if is_ours(c) for key in vars(c)}
    for key in sorted(ours):
        value = inspect.getattr_static(cls, key)
        if key.startswith("_") and key != "__call__":
            continue
        if isinstance(value, property):
            getter = signature(value.fget).partition(")")[2] if value.fget else ""
            read = getter if value.fget else ", cannot be read"
            setter = ", can be set" if value.fset else ""
            yield f"{name}.{key}", f"property{read}{setter}"
        elif isinstance(value, (classmethod, staticmethod)):
            kind = type(value).__name__
            yield f"{name}.{key}", f"{kind} {signature(value.__func__)}"
        elif callable(value):
            yield f"{name}.{key}", signature(value)
        else:
            yield f"{name}.{key}", f"attribute {type(value).__name__}"


def is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "lockstep"


def signature(function: Any) -> str:
    return PLACE.sub("", str(inspect.signature(function)))


@pytest.mark.parametrize("backend", sorted(registry.BACKENDS))
def test_signatures_are_those_of_the_file(backend: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    expected = json.loads(FILE.read_text("utf-8"))[backend]
    new = set(WRAPPERS) - set(expected["default"])
    found = {
        part: {n: s for n, s in pairs.items() if n.partition(".")[0] not in new}
        for part, pairs in signatures_of(backend).items()
    }
    assert found == expected, f"if this is meant: {__doc__}"


def test_errors_can_be_caught_by_the_classes_of_the_file() -> None:
    expected = json.loads(FILE.read_text("utf-8"))["errors"]
    assert signatures_of_errors() == expected, f"if this is meant: {__doc__}"


if __name__ == "__main__":
    content: dict[str, Any] = {n: signatures_of(n) for n in registry.BACKENDS}
    content["errors"] = signatures_of_errors()
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False)
    FILE.write_text(f"{text}\n", "utf-8")
