"""The words of OpenSeq2Seq's clipping: what can be clipped, and to which norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, ValuesView
from numbers import Real
from typing import Any

from lockstep.messages.errors import (
    MalformedPairsError,
    NotASequenceError,
    OutOfRangeError,
    sentence,
)
from lockstep.messages.ranges import CHOOSE, check_norm_limit, require

__all__ = [
    "BY_NORM",
    "CLIP",
    "as_list",
    "bad_norm",
    "check_limit",
    "check_norm",
    "not_a_tensor",
]

CLIP = "clip_by_global_norm"
BY_NORM = "clip_gradients_by_norm"


def as_list(t_list: Any, strict: bool) -> list[Any]:
    """Return the tensors of ``t_list``, or raise unless it is a sequence of them.

    By default an iterator is read once; strict refuses it.

    # Quirk: docs/differences.md#clip-scalar
    """
    listed = isinstance(t_list, Sequence) and not isinstance(t_list, str | bytes)
    read_once = isinstance(t_list, Iterator | ValuesView) and not strict
    if not (listed or read_once):
        remedy = "put the tensors into a list"
        got = f"a {type(t_list).__name__}"
        text = sentence(f"{CLIP}: t_list", "a sequence of tensors", got, remedy)
        raise NotASequenceError(text)
    return list(t_list)


def check_limit(owner: str, name: str, limit: Any) -> None:
    """Raise unless ``limit`` is a positive number that float32 can divide by.

    Strict does not ask: 0, negative, infinite and NaN limits give odd results.

    # Quirk: docs/differences.md#clip-limit
    """
    expected = "a finite number > 0"
    require(owner, name, limit, isinstance(limit, Real), expected, CHOOSE)
    check_norm_limit(owner, name, limit)


def check_norm(use_norm: Any) -> None:
    """Raise for a Python number below 0; tensors are not looked at.

    Infinity and NaN pass: norms of gradients that overflowed are like that.
    """
    if isinstance(use_norm, int | float) and use_norm < 0:
        raise OutOfRangeError(_about_norm("a number >= 0", repr(use_norm)))


def bad_norm(got: str) -> MalformedPairsError:
    """Build the error for a ``use_norm`` that is not one number."""
    return MalformedPairsError(_about_norm("a number or a 0-d tensor", got))


def not_a_tensor(position: int, got: str) -> MalformedPairsError:
    """Build the error for an entry of a list that is no tensor."""
    expected = f"a tensor or None at position {position}"
    remedy = "convert it to a tensor first"
    return MalformedPairsError(sentence(f"{CLIP}: t_list", expected, got, remedy))


def _about_norm(expected: str, got: str) -> str:
    remedy = "pass the norm of all tensors, or leave it out"
    return sentence(f"{CLIP}: use_norm", expected, got, remedy)
