"""What a list of (gradient, variable) pairs must look like, on every backend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lockstep.messages.errors import (
    DtypeError,
    MalformedPairsError,
    NoGradientsError,
    OutOfRangeError,
    ShapeError,
    sentence,
)

__all__ = [
    "as_pairs",
    "listed_pairs",
    "not_a_counter",
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
    """Materialise ``grads_and_vars`` once and check that it consists of pairs.

    Raises:
        MalformedPairsError: not iterable, or an entry is not a pair.
        NoGradientsError: the list is empty.
    """
    pairs = listed_pairs(grads_and_vars, owner)
    if not pairs:
        raise NoGradientsError(
            sentence(
                owner,
                "at least one (gradient, variable) pair",
                "an empty list",
                "pass what compute_gradients returned",
            )
        )
    return pairs


def listed_pairs(grads_and_vars: Iterable[Any], owner: str) -> list[Pair]:
    """Do as :func:`as_pairs`, but let an empty list pass."""
    if not isinstance(grads_and_vars, Iterable):
        raise MalformedPairsError(_not_pairs(owner, repr(grads_and_vars)))
    pairs: list[Pair] = []
    for position, entry in enumerate(grads_and_vars):
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            got = f"{type(entry).__name__} at position {position}"
            raise MalformedPairsError(_not_pairs(owner, got))
        pairs.append((entry[0], entry[1]))
    return pairs


def require_gradients(pairs: Iterable[Pair], owner: str, names: Iterable[str]) -> None:
    """Raise NoGradientsError when every gradient of ``pairs`` is absent (None)."""
    if all(gradient is None for gradient, _ in pairs):
        raise NoGradientsError(
            sentence(
                owner,
                "a gradient for at least one variable",
                f"None for every one of {', '.join(names)}",
                "check that the loss depends on these variables",
            )
        )


def require_like(
    owner: str,
    name: str,
    gradient: tuple[tuple[int, ...], str],
    variable: tuple[tuple[int, ...], str],
) -> None:
    """Raise unless the (shape, dtype) of a gradient are those of its variable."""
    require_shape(owner, name, gradient[0], variable[0])
    if gradient[1] != variable[1]:
        expected = f"a gradient of dtype {variable[1]} for {name!r}"
        remedy = "cast the gradient to the variable's dtype"
        raise DtypeError(sentence(owner, expected, gradient[1], remedy))


def require_shape(
    owner: str, name: str, gradient: tuple[int, ...], variable: tuple[int, ...]
) -> None:
    """Raise unless the shape of a gradient is that of its variable."""
    if gradient != variable:
        expected = f"a gradient of shape {list(variable)} for {name!r}"
        remedy = "pass the gradient of this very variable"
        raise ShapeError(sentence(owner, expected, str(list(gradient)), remedy))


def require_rows(owner: str, name: str, indices: int, rows: int) -> None:
    """Raise unless a sparse gradient has an index for each of its rows."""
    if indices != rows:
        expected = f"an index for each of {rows} rows of the gradient of {name!r}"
        remedy = "let indices be as long as values"
        raise ShapeError(sentence(owner, expected, str(indices), remedy))


def require_indices(owner: str, name: str, ends: tuple[int, int], count: int) -> None:
    """Raise unless the least and the largest index name rows of a variable."""
    for index in ends:
        if not 0 <= index < count:
            expected = f"indices of the {count} rows of {name!r}"
            remedy = "count them from 0"
            raise OutOfRangeError(sentence(owner, expected, str(index), remedy))


def refuse_integers(owner: str, dtypes: Iterable[str]) -> None:
    """Raise DtypeError for gradients that a factor would round to whole numbers."""
    for dtype in dtypes:
        if "float" not in dtype and "complex" not in dtype:
            expected, remedy = "floating-point gradients", "cast them first"
            raise DtypeError(sentence(owner, expected, dtype, remedy))


def refuse_complex(owner: str, dtypes: Iterable[str]) -> None:
    """Raise DtypeError for gradients that would lose their imaginary parts."""
    for dtype in dtypes:
        if "complex" in dtype:
            remedy = "pass their real and imaginary parts as two"
            raise DtypeError(sentence(owner, "real gradients", dtype, remedy))


def _not_pairs(owner: str, got: str) -> str:
    remedy = "pass a list such as [(gradient, variable), ...]"
    return sentence(owner, "an iterable of (gradient, variable) pairs", got, remedy)


def not_a_counter(owner: str, got: str) -> DtypeError:
    """Build the error for a ``global_step`` that cannot count."""
    expected = "global_step to be None or a 0-d integer variable"
    remedy = "make one with Variable('global_step', 0, np.int64)"
    return DtypeError(sentence(owner, expected, got, remedy))
