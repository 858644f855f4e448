"""What is said of a saved state that is another optimizer's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lockstep.spec.errors import ShapeError, UnsupportedError, sentence

__all__ = [
    "LAYOUT",
    "foreign_masters",
    "not_a_state",
    "other_groups",
    "other_layout",
    "other_rule",
    "other_scale",
    "other_shape",
    "other_slots",
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
