"""What is said of a saved state that is another optimizer's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from lockstep.messages.base import refusals
from lockstep.messages.errors import (
    OutOfRangeError,
    UnsupportedError,
)
from lockstep.messages.ranges import number_of

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
"""How the numbers of a loss scale, and masters, lie in a saved state.

It is saved with them; a state without it is of layout 1. Who changes a key, or what one
means, adds one here, and reads the older layouts too.
"""

AT_MOST = 6
"""How many keys a sentence lists."""

RELOAD = "load what state_dict() of the same stack and model returned"


def not_a_state(owner: str, got: object) -> UnsupportedError:
    """What no ``state_dict`` of an optimizer returned."""
    text = repr(got) if got is None else f"a {type(got).__name__}"
    if isinstance(got, Mapping):
        keys = ", ".join(map(str, [*got][:AT_MOST])) + ", ..." * (len(got) > AT_MOST)
        text = f"one of {keys}" if got else "an empty one"
        text += " in another form" * ({"state", "param_groups"} <= set(got))
    return refusals.NOT_A_STATE.error(owner=owner, got=text)


def other_rule(
    owner: str, optimizer: str, missing: Sequence[str], foreign: Sequence[str]
) -> UnsupportedError:
    """The state of another optimizer: it has other hyper-parameters."""
    lacks = [f"without {', '.join(missing)}"] if missing else []
    got = [*lacks, *([f"with {', '.join(foreign)}"] if foreign else [])]
    return refusals.OTHER_RULE.error(
        owner=owner, optimizer=optimizer, got=" and ".join(got)
    )


def other_slots(
    owner: str, name: str, expected: Sequence[str], got: Iterable[str]
) -> UnsupportedError:
    """The slots of another rule, or not all of them."""
    return refusals.OTHER_SLOTS.error(
        owner=owner,
        expected=", ".join(expected) or "none",
        name=name,
        got=", ".join(sorted(got)),
    )


def unnamed(owner: str, parameters: int, names: object) -> UnsupportedError:
    """A group with names that are not one for each parameter."""
    got = f"{len(names)}" if isinstance(names, list | tuple) else f"{names!r:.40}"
    return refusals.UNNAMED.error(owner=owner, parameters=parameters, got=got)


def unusable_numbers(owner: str, optimizer: str, error: Exception) -> OutOfRangeError:
    """Saved hyper-parameters that the optimizer refuses, or cannot step with."""
    first = (str(error).splitlines() or [""])[0].rstrip(".")
    return refusals.SAVED_HYPERPARAMETERS.error(
        owner=owner, optimizer=optimizer, kind=type(error).__name__, first=first
    )


def check_power(owner: str, name: str, value: Any) -> None:
    """Raise unless a saved power of beta is one."""
    if not 0 <= number_of(value) <= 1:
        raise refusals.SAVED_POWER.error(owner=owner, name=name, got=value)


def check_steps(owner: str, name: str, value: Any) -> None:
    """Raise unless a saved number of steps of a parameter is one."""
    if not 0 <= number_of(value) < math.inf:
        raise refusals.SAVED_STEPS.error(owner=owner, name=name, got=value)


def check_number(owner: str, key: str, value: Any) -> None:
    """Raise unless a saved value is a number of a float; infinity and NaN are some."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or (math.isnan(number_of(value)) and value == value):
        raise refusals.SAVED_NUMBER.error(owner=owner, key=key, value=value)


def check_count(owner: str, key: str, value: Any) -> None:
    """Raise unless a saved count is an integer >= 0, of 64 bits."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and 0 <= value < 2**63):
        raise refusals.SAVED_COUNT.error(owner=owner, key=key, got=value)
