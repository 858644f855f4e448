"""The words of averaging gradients over ranks, and the seam for what does it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from types import NoneType
from typing import Any, Protocol

from lockstep.messages.step import refusals

__all__ = [
    "REDUCE",
    "Reduction",
    "check_arguments",
    "check_engine",
]

REDUCE = "reduce_gradients"
ENGINE = ("size", "any", "all_reduce")
"""What a reduction has to have."""


class Reduction(Protocol):
    """What averages over ranks: an engine implements these three.

    Every rank calls ``any`` and ``all_reduce`` in the same order, with lists of the
    same length and tensors of the same shapes and dtypes.

    Attributes:
        size: how many ranks there are; with one of them nothing else is called.
    """

    @property
    def size(self) -> int:
        """Return how many ranks there are."""
        ...

    def any(self, flags: Sequence[bool]) -> Sequence[bool]:
        """Return, for each flag, whether it is set on any rank."""
        ...

    def all_reduce(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return, for each dense tensor, its mean over the ranks."""
        ...


def check_arguments(on_horovod: Any, reduction: Any) -> None:
    """Raise unless gradients are to be reduced, and by an engine."""
    if not isinstance(on_horovod, Integral | NoneType):
        raise refusals.REDUCED_WITHOUT_RANKS.error(got=on_horovod)
    if not on_horovod:
        raise refusals.NOT_REDUCED.error()
    check_engine(reduction)


def check_engine(reduction: Any, subject: str = f"{REDUCE}: reduction") -> None:
    """Raise for an engine that lacks something; it is not asked for its size yet."""
    missing = [part for part in ENGINE if part not in dir(reduction)]
    is_class = isinstance(reduction, type)
    if reduction is not None and (missing or is_class):
        lacks = "which is no instance" if is_class else f"without {', '.join(missing)}"
        kind = reduction.__name__ if is_class else f"a {type(reduction).__name__}"
        raise refusals.BAD_ENGINE.error(subject=subject, kind=kind, lacks=lacks)
