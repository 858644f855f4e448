"""What is said of a saved state that is another optimizer's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockstep.spec.errors import ShapeError, UnsupportedError, sentence

__all__ = [
    "LAYOUT",
    "foreign_masters",
    "other_groups",
    "other_layout",
    "other_scale",
    "other_shape",
]

LAYOUT = 1
"""How the numbers of a loss scale, and masters, lie in a saved state.

It is saved with them; a state without it is of layout 1. Who changes a key, or what one
means, adds one here, and reads the older layouts too.
"""

RELOAD = "load what state_dict() of the same stack and model returned"


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


def other_shape(
    owner: str, slot: str, name: str, expected: Sequence[int], got: Sequence[int]
) -> ShapeError:
    """A saved slot that is not that of this parameter."""
    wanted = f"a saved {slot!r} of shape {list(expected)} for {name!r}"
    return ShapeError(sentence(owner, wanted, str(list(got)), RELOAD))


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
