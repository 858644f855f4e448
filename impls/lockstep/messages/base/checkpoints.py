"""Checks and messages for a saved state that does not fit the optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from lockstep.checks import number_of
from lockstep.errors import OutOfRangeError, UnsupportedError, with_article
from lockstep.messages.base import refusals

__all__ = [
    "LAYOUT",
    "check_count",
    "check_number",
    "check_power",
    "check_steps",
    "not_a_state",
    "other_rule",
    "other_slots",
    "unnamed",
    "unusable_numbers",
]

LAYOUT = 1
"""Version of the layout of loss scales and masters in a saved state.

It is saved with the state; a state without it has layout 1. If you change a key or its
meaning, increase this number, and keep reading the older layouts.
"""

AT_MOST = 6
"""The largest number of keys in a message."""

RELOAD = "load what state_dict() of the same stack and model returned"


def not_a_state(owner: str, got: object) -> UnsupportedError:
    """Build the error for an object that no ``state_dict`` of an optimizer returned."""
    text = repr(got) if got is None else with_article(type(got).__name__)
    if isinstance(got, Mapping):
        keys = ", ".join(map(str, [*got][:AT_MOST])) + ", ..." * (len(got) > AT_MOST)
        text = f"one of {keys}" if got else "an empty one"
        text += " in another form" * ({"state", "param_groups"} <= set(got))
    return refusals.NOT_A_STATE.error(owner=owner, got=text)


def other_rule(
    owner: str, optimizer: str, missing: Sequence[str], foreign: Sequence[str]
) -> UnsupportedError:
    """Build the error for a saved state with another optimizer's hyper-parameters."""
    lacks = [f"without {', '.join(missing)}"] if missing else []
    got = [*lacks, *([f"with {', '.join(foreign)}"] if foreign else [])]
    return refusals.OTHER_RULE.error(
        owner=owner, optimizer=optimizer, got=" and ".join(got)
    )


def other_slots(
    owner: str, name: str, expected: Sequence[str], got: Iterable[str]
) -> UnsupportedError:
    """Build the error for saved slots that are not those of this rule."""
    return refusals.OTHER_SLOTS.error(
        owner=owner,
        expected=", ".join(expected) or "none",
        name=name,
        got=", ".join(sorted(got)),
    )


def unnamed(owner: str, parameters: int, names: object) -> UnsupportedError:
    """Build the error for a group whose names and parameters differ in number."""
    got = f"{len(names)}" if isinstance(names, list | tuple) else f"{names!r:.40}"
    return refusals.UNNAMED.error(owner=owner, parameters=parameters, got=got)


def unusable_numbers(owner: str, optimizer: str, error: Exception) -> OutOfRangeError:
    """Build the error for saved hyper-parameters that the optimizer refuses."""
    first = (str(error).splitlines() or [""])[0].rstrip(".")
    return refusals.SAVED_HYPERPARAMETERS.error(
        owner=owner, optimizer=optimizer, kind=type(error).__name__, first=first
    )


def check_power(owner: str, name: str, value: Any) -> None:
    """Raise unless a saved power of beta is in [0, 1]."""
    if not 0 <= number_of(value) <= 1:
        raise refusals.SAVED_POWER.error(owner=owner, name=name, got=value)


def check_steps(owner: str, name: str, value: Any) -> None:
    """Raise unless a parameter's saved step count is a finite number >= 0."""
    if not 0 <= number_of(value) < math.inf:
        raise refusals.SAVED_STEPS.error(owner=owner, name=name, got=value)


def check_number(owner: str, key: str, value: Any) -> None:
    """Raise unless a saved value can be converted to a float; inf and NaN can."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or (math.isnan(number_of(value)) and value == value):
        raise refusals.SAVED_NUMBER.error(owner=owner, key=key, value=value)


def check_count(owner: str, key: str, value: Any) -> None:
    """Raise unless a saved count is an integer in [0, 2^63)."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and 0 <= value < 2**63):
        raise refusals.SAVED_COUNT.error(owner=owner, key=key, got=value)
