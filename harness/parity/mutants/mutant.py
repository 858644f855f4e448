"""A mistake that can be planted into the reference, and ways to make one."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    "one_percent_more",
    "planted",
]

Change = Callable[[Any], Any]


@dataclass(frozen=True)
class Mutant:
    """One mistake: where it is planted, what it is, and the families that notice it.

    ``change`` turns the right object at ``target``, a path inside
    ``lockstep.reference``, into the wrong one.
    """

    target: str
    mistake: str
    change: Change
    families: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.target}: {self.mistake}"


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Put the mistake into the reference for the time of the block."""
    path, _, attribute = mutant.target.rpartition(".")
    owner: Any = pkgutil.resolve_name(f"lockstep.reference.{path}")
    with mock.patch.object(owner, attribute, mutant.change(getattr(owner, attribute))):
        yield


def constant(value: Any) -> Change:
    """Replace a function by one that always returns ``value``."""
    return lambda right: lambda *arguments, **options: value


def instead(wrong: Any) -> Change:
    """Replace an object by ``wrong``, whatever it was."""
    return lambda right: wrong


def after(change: Callable[[Any], Any]) -> Change:
    """Change what a function returns."""
    return lambda right: (
        lambda *arguments, **options: change(right(*arguments, **options))
    )


def before(change: Callable[..., tuple[Any, ...]]) -> Change:
    """Change what a function is given."""
    return lambda right: lambda *arguments: right(*change(*arguments))


def one_percent_more(value: Array) -> Array:
    return np.asarray(value * value.dtype.type(1.01))
