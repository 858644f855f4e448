"""Checks of (gradient, variable) pairs on every backend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockstep.messages.base import refusals

__all__ = [
    "as_pairs",
    "listed_pairs",
    "refuse_complex",
    "refuse_integers",
    "require_gradients",
    "require_indices",
    "require_like",
    "require_rows",
    "require_shape",
]

Pair = tuple[Any, Any]


def as_pairs(grads_and_vars: Iterable[Any], owner: str) -> list[Pair]:
    """Return ``grads_and_vars`` as a list, and check that it consists of pairs.

    Raises:
        MalformedPairsError: not iterable, or an entry is not a pair.
        NoGradientsError: the list is empty.
    """
    pairs = listed_pairs(grads_and_vars, owner)
    if not pairs:
        raise refusals.NO_PAIRS.error(owner=owner)
    return pairs


def listed_pairs(grads_and_vars: Iterable[Any], owner: str) -> list[Pair]:
    """Return the pairs as :func:`as_pairs` does, but accept an empty list."""
    if not isinstance(grads_and_vars, Iterable):
        raise refusals.NOT_PAIRS.error(owner=owner, got=repr(grads_and_vars))
    pairs: list[Pair] = []
    for position, entry in enumerate(grads_and_vars):
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            got = f"{type(entry).__name__} at position {position}"
            raise refusals.NOT_PAIRS.error(owner=owner, got=got)
        pairs.append((entry[0], entry[1]))
    return pairs


def require_gradients(pairs: Iterable[Pair], owner: str, names: Iterable[str]) -> None:
    """Raise NoGradientsError when every gradient of ``pairs`` is absent (None)."""
    if all(gradient is None for gradient, _ in pairs):
        raise refusals.NO_GRADIENTS.error(owner=owner, got=", ".join(names))


def require_like(
    owner: str,
    name: str,
    gradient: tuple[tuple[int, ...], str],
    variable: tuple[tuple[int, ...], str],
) -> None:
    """Raise unless a gradient has its variable's (shape, dtype)."""
    require_shape(owner, name, gradient[0], variable[0])
    if gradient[1] != variable[1]:
        raise refusals.OTHER_DTYPE.error(
            owner=owner, expected=variable[1], name=name, got=gradient[1]
        )


def require_shape(
    owner: str, name: str, gradient: tuple[int, ...], variable: tuple[int, ...]
) -> None:
    """Raise unless a gradient has its variable's shape."""
    if gradient != variable:
        raise refusals.OTHER_SHAPE.error(
            owner=owner, expected=list(variable), name=name, got=list(gradient)
        )


def require_rows(owner: str, name: str, indices: int, rows: int) -> None:
    """Raise unless a sparse gradient has an index for each of its rows."""
    if indices != rows:
        raise refusals.INDEX_MISSING.error(
            owner=owner, rows=rows, name=name, got=indices
        )


def require_indices(owner: str, name: str, ends: tuple[int, int], count: int) -> None:
    """Raise unless the smallest and largest index (``ends``) are in [0, count)."""
    for index in ends:
        if not 0 <= index < count:
            raise refusals.INDEX_OUT_OF_RANGE.error(
                owner=owner, count=count, name=name, got=index
            )


def refuse_integers(owner: str, dtypes: Iterable[str]) -> None:
    """Raise DtypeError for integer gradients, which a factor would round."""
    for dtype in dtypes:
        if "float" not in dtype and "complex" not in dtype:
            raise refusals.INTEGER_GRADIENTS.error(owner=owner, got=dtype)


def refuse_complex(owner: str, dtypes: Iterable[str]) -> None:
    """Raise DtypeError for complex gradients: their imaginary parts would be lost."""
    for dtype in dtypes:
        if "complex" in dtype:
            raise refusals.COMPLEX_GRADIENTS.error(owner=owner, got=dtype)
