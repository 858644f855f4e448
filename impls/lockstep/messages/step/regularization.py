"""Checks and messages of the total regularization loss."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lockstep.messages.step import refusals

__all__ = [
    "NAME",
    "chosen_losses",
    "in_groups",
]

FUNCTION = "get_regularization_loss"
NAME = "total_regularization_loss"
"""The name of the total."""


def in_groups(losses: Sequence[Any]) -> list[Sequence[Any]]:
    """Split losses into the groups in which TensorFlow adds them.

    The first group has two to nine losses, the others eight. Each group is summed, and
    its sum is added to the total.
    """
    first = (len(losses) - 2) % 8 + 2
    starts = range(first, len(losses), 8)
    return [losses[:first], *(losses[start : start + 8] for start in starts)]


def chosen_losses(losses: Any, scope: str | None) -> list[Any]:
    """Return the losses whose names match ``scope``; all losses without a scope.

    Args:
        losses: a mapping name -> loss, or an iterable of losses without names. Losses
            of None, which a deferred regularizer returns, are ignored.
        scope: a regular expression; it must match at the start of a loss's name.

    Raises:
        MalformedPairsError: a TypeError; ``losses`` is no collection.
        OutOfRangeError: a ValueError; ``scope`` is no regular expression.
        UnsupportedError: a ValueError; a scope is given, but no names.
    """
    pattern = None if scope is None else _pattern(scope)
    if isinstance(losses, Mapping):
        named = losses.items()
        values = [v for n, v in named if pattern is None or pattern.match(str(n))]
        return [value for value in values if value is not None]
    one = isinstance(losses, str) or hasattr(losses, "dtype")
    if one or not isinstance(losses, Iterable):
        got = type(losses).__name__
        raise refusals.LOSSES_NOT_LISTED.error(got=got)
    if pattern is not None:
        raise refusals.LOSSES_WITHOUT_NAMES.error()
    return [value for value in losses if value is not None]


def _pattern(scope: str) -> re.Pattern[str]:
    try:
        return re.compile(scope)
    except (re.error, TypeError) as error:
        raise refusals.BAD_SCOPE.error(got=scope) from error
