"""Checks of the arguments of OpenSeq2Seq's clipping functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, ValuesView
from numbers import Real
from typing import Any

from lockstep.checks import CHOOSE, check_norm_limit, require
from lockstep.messages.clipping import refusals

__all__ = [
    "BY_NORM",
    "CLIP",
    "as_list",
    "check_limit",
    "check_norm",
]

CLIP = "clip_by_global_norm"
BY_NORM = "clip_gradients_by_norm"


def as_list(t_list: Any, clip_scalar: bool) -> list[Any]:
    """Return ``t_list`` as a list; raise unless it is a sequence.

    Iterators are also accepted, unless ``clip_scalar`` is set.
    """
    listed = isinstance(t_list, Sequence) and not isinstance(t_list, str | bytes)
    read_once = isinstance(t_list, Iterator | ValuesView) and not clip_scalar
    if not (listed or read_once):
        raise refusals.NOT_A_SEQUENCE.error(got=type(t_list).__name__)
    return list(t_list)


def check_limit(owner: str, name: str, limit: Any) -> None:
    """Raise unless ``limit`` is a positive number that float32 can divide by.

    Strict skips this check, so 0, negative, infinite and NaN limits give odd results.

    Quirk ``clip_limit``.
    """
    expected = "a finite number > 0"
    require(owner, name, limit, isinstance(limit, Real), expected, CHOOSE)
    check_norm_limit(owner, name, limit)


def check_norm(use_norm: Any) -> None:
    """Raise for a negative Python number; tensors are not checked.

    Infinity and NaN are allowed, because gradients that overflow have such norms.
    """
    if isinstance(use_norm, int | float) and use_norm < 0:
        raise refusals.NEGATIVE_NORM.error(got=use_norm)
