"""Checks and messages of AGN's getter: its arguments and the center's names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from lockstep.errors import GetterError
from lockstep.messages.workers import refusals

__all__ = [
    "check_center",
    "check_names",
    "not_variables",
    "require_several",
]

AT_MOST = 4
"""The largest number of names in a message."""


def check_center(center: object, kind: type) -> None:
    """Raise a GetterError unless ``center`` is None or of class ``kind``."""
    if center is not None and not isinstance(center, kind):
        raise refusals.NOT_A_CENTER.error(got=type(center).__name__)


def require_several(
    given: object, is_variable: Callable[[Any], bool], expected: str
) -> Iterable[Any]:
    """Return ``given``; raise unless it is an iterable of entries.

    A single variable is refused, because iterating over it would give its rows.
    """
    if is_variable(given):
        got = f"one {type(given).__name__}"
        raise not_variables(expected, got, "put it into a list")
    if isinstance(given, Mapping):
        raise not_variables(expected, type(given).__name__, "pass its items or values")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise not_variables(expected, type(given).__name__)
    return given


def check_names(known: Collection[str], names: Iterable[str]) -> None:
    """Raise for names that a filled center does not have: nobody would share them.

    Raises:
        UnsupportedError: a ValueError.
    """
    strange = [name for name in names if name not in known]
    if strange:
        raise refusals.UNKNOWN_NAMES.error(known=listed(known), got=listed(strange))


def listed(names: Collection[str]) -> str:
    """Return the first few names and the number of the others."""
    left = len(names) - AT_MOST
    text = ", ".join(repr(name) for name in list(names)[:AT_MOST])
    return f"{text} and {left} more" if left > 0 else text


def not_variables(
    expected: str, got: str, remedy: str = "pass what the worker trains"
) -> GetterError:
    """Build the error for an argument without variables."""
    return refusals.NOT_VARIABLES.error(expected=expected, got=got, remedy=remedy)
