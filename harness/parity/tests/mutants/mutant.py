"""A mistake that can be inserted into the reference, and ways to create one."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from lockstep.interface import Array

__all__ = [
    "Change",
    "Mutant",
    "after",
    "before",
    "constant",
    "instead",
    "of_class",
    "one_percent_more",
    "planted",
    "replaced",
]

Change = Callable[[Any], Any]


@dataclass(frozen=True)
class Mutant:
    """One mistake: its target, its description, and the families that detect it.

    ``change`` is called with the correct object at ``target``, a path inside
    ``lockstep.reference``, or with ``lockstep`` in front, and returns the wrong one.
    """

    target: str
    mistake: str
    change: Change
    families: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.target}: {self.mistake}"


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Replace the correct object by the wrong one inside the block."""
    path, _, attribute = mutant.target.rpartition(".")
    root = "" if path.startswith("lockstep.") else "lockstep.reference."
    owner: Any = pkgutil.resolve_name(f"{root}{path}")
    with mock.patch.object(owner, attribute, mutant.change(getattr(owner, attribute))):
        yield


def constant(value: Any) -> Change:
    """Replace a function by one that always returns ``value``."""
    return lambda right: lambda *arguments, **options: value


def instead(wrong: Any) -> Change:
    """Replace an object by ``wrong``, whatever it was."""
    return lambda right: wrong


def of_class(kind: type[Exception]) -> Change:
    """Make a row of a table of errors build errors of another class."""
    return lambda right: replace(right, kind=kind)


def after(change: Callable[[Any], Any]) -> Change:
    """Change the result of a function."""
    return lambda right: (
        lambda *arguments, **options: change(right(*arguments, **options))
    )


def before(change: Callable[..., tuple[Any, ...]]) -> Change:
    """Change the arguments of a function."""
    return lambda right: lambda *arguments: right(*change(*arguments))


def replaced(**changes: Any) -> Change:
    """Change entries of the policy, the first argument of a rule."""
    return before(lambda policy, *rest: (policy._replace(**changes), *rest))


def one_percent_more(value: Array) -> Array:
    """Return the value times 1.01, in its dtype."""
    return np.asarray(value * value.dtype.type(1.01))
