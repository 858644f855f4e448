"""The words of AGN's getter: what it takes, which names join a center, sentences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from lockstep.messages.errors import GetterError, UnsupportedError, sentence
from lockstep.messages.workers.agn import GETTER

__all__ = [
    "check_center",
    "check_names",
    "not_a_device",
    "not_built",
    "not_variables",
    "read_entries",
    "require_several",
    "taken_name",
]

Entries = list[tuple[str | None, Any]]

AT_MOST = 4
"""How many names a sentence lists."""


def check_center(center: object, kind: type) -> None:
    """Raise a GetterError unless ``center`` is None or of the host's ``kind``."""
    if center is not None and not isinstance(center, kind):
        subject, expected = f"{GETTER}: center", "the center of another worker's getter"
        remedy = "pass its attribute, center=getter.center"
        raise GetterError(sentence(subject, expected, type(center).__name__, remedy))


def read_entries(
    given: object, is_variable: Callable[[Any], bool], expected: str
) -> Entries:
    """Return (name, variable) pairs, with None for the name of a bare variable.

    Args:
        given: variables, or pairs of a name and a variable.
        is_variable: tells whether something is a variable of the host.
        expected: what the host takes, for the sentence.

    Raises:
        GetterError: a TypeError; anything else.
    """
    entries: Entries = []
    for entry in require_several(given, is_variable, expected):
        if is_variable(entry):
            entries.append((None, entry))
        elif is_pair(entry) and is_variable(entry[1]):
            entries.append((entry[0], entry[1]))
        else:
            raise not_variables(expected, f"{type(entry).__name__} among them")
    return entries


def require_several(
    given: object, is_variable: Callable[[Any], bool], expected: str
) -> Iterable[Any]:
    """Return what can be read one by one; a variable could, but into its rows."""
    if is_variable(given):
        got = f"one {type(given).__name__}"
        raise not_variables(expected, got, "put it into a list")
    if isinstance(given, Mapping):
        raise not_variables(expected, type(given).__name__, "pass its items or values")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise not_variables(expected, type(given).__name__)
    return given


def is_pair(entry: Any) -> bool:
    """Tell whether this is a name with something."""
    is_two = isinstance(entry, tuple | list) and len(entry) == 2
    return is_two and isinstance(entry[0], str)


def check_names(known: Collection[str], names: Iterable[str]) -> None:
    """Raise for names that a filled center lacks: they would be shared with nobody.

    Raises:
        UnsupportedError: a ValueError.
    """
    strange = [name for name in names if name not in known]
    if strange:
        expected = f"names that the center has, {listed(known)}"
        remedy = (
            "give each worker's variables the same names: name models and layers "
            "alike or pass pairs (name, variable); only the first worker adds names"
        )
        raise UnsupportedError(sentence(GETTER, expected, listed(strange), remedy))


def listed(names: Collection[str]) -> str:
    """Return the first few names, and how many more there are."""
    left = len(names) - AT_MOST
    told = ", ".join(repr(name) for name in list(names)[:AT_MOST])
    return f"{told} and {left} more" if left > 0 else told


def taken_name(name: str) -> UnsupportedError:
    """Build the error for a name that stands for another variable of the worker."""
    remedy = "pass one model that holds both, or pairs (name, variable) with a prefix"
    expected, got = "one variable of each name", f"another {name!r}"
    return UnsupportedError(sentence(GETTER, expected, got, remedy))


def not_variables(
    expected: str, got: str, remedy: str = "pass what the worker trains"
) -> GetterError:
    """Build the error for what has no variables to enter."""
    return GetterError(sentence(GETTER, expected, got, remedy))


def not_built(got: str) -> GetterError:
    """Build the error for a model whose variables are not there yet."""
    remedy = "build the model first, or call it once"
    return GetterError(sentence(GETTER, "a model with its variables", got, remedy))


def not_a_device(got: object, examples: str) -> GetterError:
    """Build the error for a ``worker_device`` that the host does not know."""
    subject, remedy = f"{GETTER}: worker_device", "spell it as the host does"
    expected = f"a device such as {examples}"
    return GetterError(sentence(subject, expected, repr(got), remedy))
