"""What is said of a saved state that is another optimizer's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from lockstep.messages.errors import (
    OutOfRangeError,
    ShapeError,
    UnsupportedError,
    sentence,
)
from lockstep.messages.ranges import number_of

__all__ = [
    "LAYOUT",
    "check_count",
    "check_number",
    "check_power",
    "check_steps",
    "foreign_masters",
    "not_a_number",
    "not_a_state",
    "other_dtype",
    "other_groups",
    "other_layout",
    "other_rule",
    "other_scale",
    "other_shape",
    "other_slots",
    "repeated_numbers",
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
    remedy = "if this is a whole checkpoint, pass its entry of the optimizer"
    told = repr(got) if got is None else f"a {type(got).__name__}"
    if isinstance(got, Mapping):
        keys = ", ".join(map(str, [*got][:AT_MOST])) + ", ..." * (len(got) > AT_MOST)
        told = f"one of {keys}" if got else "an empty one"
        told += " in another form" * ({"state", "param_groups"} <= set(got))
    expected = "the dict of state_dict(), with 'state' and 'param_groups'"
    return UnsupportedError(sentence(owner, expected, told, remedy))


def other_layout(owner: str, got: object) -> UnsupportedError:
    """A state that a later version has saved."""
    expected = f"a state of layout {LAYOUT} or below"
    remedy = "load it with the version that saved it, or a later one"
    return UnsupportedError(sentence(owner, expected, repr(got), remedy))


def other_groups(
    owner: str, expected: Sequence[int], got: Sequence[int]
) -> UnsupportedError:
    """A state of other parameter groups: their sizes."""
    wanted = f"a state of groups with {list(expected)} parameters"
    remedy = "load it before groups are added, or add the missing ones first"
    return UnsupportedError(sentence(owner, wanted, str(list(got)), remedy))


def other_rule(
    owner: str, optimizer: str, missing: Sequence[str], foreign: Sequence[str]
) -> UnsupportedError:
    """The state of another optimizer: it has other hyper-parameters."""
    lacks = [f"without {', '.join(missing)}"] if missing else []
    got = [*lacks, *([f"with {', '.join(foreign)}"] if foreign else [])]
    expected, remedy = (
        f"a state of {optimizer}",
        "load it into the optimizer that was saved",
    )
    told = f"one {' and '.join(got)}"
    return UnsupportedError(sentence(owner, expected, told, remedy))


def other_slots(
    owner: str, name: str, expected: Sequence[str], got: Iterable[str]
) -> UnsupportedError:
    """The slots of another rule, or not all of them."""
    wanted = f"the saved slots {', '.join(expected) or 'none'} for {name!r}"
    return UnsupportedError(sentence(owner, wanted, ", ".join(sorted(got)), RELOAD))


def other_shape(
    owner: str, slot: str, name: str, expected: Sequence[int], got: object
) -> ShapeError:
    """A saved slot that is not that of this parameter: its shape, or what it is."""
    wanted = f"a saved {slot!r} of shape {list(expected)} for {name!r}"
    return ShapeError(sentence(owner, wanted, str(got), RELOAD))


def foreign_masters(owner: str, name: str) -> UnsupportedError:
    """A state with masters, for an optimizer that trains none."""
    expected = "a state without float32 masters"
    remedy = "wrap the optimizer in MixedPrecisionOptimizerWrapper before it is loaded"
    return UnsupportedError(sentence(owner, expected, f"one for {name!r}", remedy))


def other_scale(
    owner: str, expected: Iterable[str], got: Iterable[str]
) -> UnsupportedError:
    """The state of another kind of loss scale: the names of its numbers."""
    wanted = f"a loss scale saved as {', '.join(sorted(expected))}"
    remedy = "give the wrapper the kind of loss scale that was saved"
    return UnsupportedError(sentence(owner, wanted, ", ".join(sorted(got)), remedy))


def other_dtype(owner: str, slot: str, name: str, got: str) -> UnsupportedError:
    """A saved slot whose numbers are of another kind."""
    wanted = f"a saved {slot!r} of dense real numbers for {name!r}"
    return UnsupportedError(sentence(owner, wanted, got, RELOAD))


def unnamed(owner: str, parameters: int, names: object) -> UnsupportedError:
    """A group with names that are not one for each parameter."""
    got = f"{len(names)}" if isinstance(names, list | tuple) else f"{names!r:.40}"
    wanted = f"a saved group with {parameters} names in 'param_names'"
    return UnsupportedError(sentence(owner, wanted, got, RELOAD))


def repeated_numbers(owner: str) -> UnsupportedError:
    """A state in which two parameters have one number."""
    wanted = "a saved group whose 'params' are one number for each parameter"
    return UnsupportedError(sentence(owner, wanted, "others", RELOAD))


def unusable_numbers(owner: str, optimizer: str, error: Exception) -> OutOfRangeError:
    """Saved hyper-parameters that the optimizer refuses, or cannot step with."""
    wanted = f"saved hyper-parameters that {optimizer} can use"
    first = (str(error).splitlines() or [""])[0].rstrip(".")
    got = f"some with which it fails ({type(error).__name__}: {first})"
    return OutOfRangeError(sentence(owner, wanted, got, RELOAD))


def check_power(owner: str, name: str, value: Any) -> None:
    """Raise unless a saved power of beta is one."""
    if not 0 <= number_of(value) <= 1:
        wanted = f"a saved {name} in [0, 1]"
        raise OutOfRangeError(sentence(owner, wanted, f"{value!r:.40}", RELOAD))


def check_steps(owner: str, name: str, value: Any) -> None:
    """Raise unless a saved number of steps of a parameter is one."""
    if not 0 <= number_of(value) < math.inf:
        wanted = f"a saved number of steps >= 0 for {name!r}"
        raise OutOfRangeError(sentence(owner, wanted, f"{value!r:.40}", RELOAD))


def check_number(owner: str, key: str, value: Any) -> None:
    """Raise unless a saved value is a number of a float; infinity and NaN are some."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or (math.isnan(number_of(value)) and value == value):
        raise not_a_number(owner, key, value)


def not_a_number(owner: str, key: str, value: object) -> OutOfRangeError:
    """A saved value with which nothing can be computed."""
    wanted = f"a saved {key} that is a finite number"
    return OutOfRangeError(sentence(owner, wanted, f"{value!r:.40}", RELOAD))


def check_count(owner: str, key: str, value: Any) -> None:
    """Raise unless a saved count is an integer >= 0, of 64 bits."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and 0 <= value < 2**63):
        wanted = f"a saved {key} that is an integer >= 0"
        raise OutOfRangeError(sentence(owner, wanted, f"{value!r:.40}", RELOAD))
