"""Every public signature as text, and the base classes of each error."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from harness.nets.snapshots import Snapshot
from lockstep import registry
from lockstep.interface import EXPORTS
from lockstep.messages import errors

__all__ = ["members", "of_backend", "of_errors", "take"]

MODULE_PATH = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def take() -> Snapshot:
    """Return the signatures of all backends, in both modes, and of the errors."""
    backends = {name: of_backend(name) for name in registry.BACKENDS}
    return {**backends, "errors": of_errors()}


def of_backend(name: str) -> dict[str, dict[str, str]]:
    """Return ``default`` and ``strict`` -> public name -> its signature."""
    return {
        mode: dict(_named(registry.load(name, strict=mode == "strict")))
        for mode in ("default", "strict")
    }


def of_errors() -> dict[str, str]:
    """Return the name of each error -> the classes by which it can be caught."""
    objects = [getattr(errors, name) for name in errors.__all__]
    classes = [c for c in objects if isinstance(c, type) and issubclass(c, Exception)]
    return {c.__name__: ", ".join(b.__name__ for b in c.__mro__[1:-2]) for c in classes}


def members(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield (name, signature) of a public object and of its public members.

    The members of a class are the methods and properties that Lockstep defines, in any
    of its classes. Those of the framework depend on the framework's version.
    """
    if isinstance(value, ModuleType):
        for each in value.__all__:
            yield from members(f"{name}.{each}", getattr(value, each))
    elif isinstance(value, type):
        foreign = next(c for c in value.__mro__ if not _is_ours(c))
        yield name, f"class{_signature(value)}, a {foreign.__name__}"
        yield from _methods(name, value)
    elif callable(value):
        yield name, _signature(value)
    elif isinstance(value, Mapping):
        listed = (f"{key}: {getattr(v, '__name__', v)}" for key, v in value.items())
        yield name, f"mapping {', '.join(listed)}"
    else:
        yield name, repr(value)


def _named(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name in sorted({*EXPORTS, *module.__all__}):
        yield from members(name, getattr(module, name))


def _methods(name: str, cls: type) -> Iterator[tuple[str, str]]:
    ours = {key for c in cls.__mro__ if _is_ours(c) for key in vars(c)}
    for key in sorted(ours):
        value = inspect.getattr_static(cls, key)
        if key.startswith("_") and key != "__call__":
            continue
        if isinstance(value, property):
            setter = ", can be set" if value.fset else ""
            yield f"{name}.{key}", f"property{_result(value.fget)}{setter}"
        elif isinstance(value, (classmethod, staticmethod)):
            kind = type(value).__name__
            yield f"{name}.{key}", f"{kind} {_signature(value.__func__)}"
        elif callable(value):
            yield f"{name}.{key}", _signature(value)
        else:
            yield f"{name}.{key}", f"attribute {type(value).__name__}"


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "lockstep"


def _signature(function: Any) -> str:
    return _without_places(str(inspect.signature(function)))


def _result(getter: Any) -> str:
    """Return the annotation of a property's result, if it can be read."""
    return _signature(getter).partition(")")[2] if getter else ", cannot be read"


def _without_places(text: str) -> str:
    """Remove modules and addresses, which change when something is moved.

    Example:
        >>> _without_places("(x: 'lockstep.tf.core.Pair' = torch.float32, y=0.5)")
        "(x: 'Pair' = float32, y=0.5)"
    """
    return ADDRESS.sub("", MODULE_PATH.sub("", text))
