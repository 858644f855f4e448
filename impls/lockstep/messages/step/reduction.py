"""Messages of averaging gradients over ranks, and the interface of a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from types import NoneType
from typing import Any, Protocol

from lockstep.errors import with_article
from lockstep.messages.step import refusals

__all__ = [
    "REDUCE",
    "Reduction",
    "check_arguments",
    "check_engine",
]

REDUCE = "reduce_gradients"
ENGINE = ("size", "any", "all_reduce")
"""The attributes of a reduction."""


class Reduction(Protocol):
    """Interface of an engine that averages over ranks.

    Every rank calls ``any`` and ``all_reduce`` in the same order, with lists of the
    same length and tensors of the same shapes and dtypes.

    Attributes:
        size: the number of ranks; with a single rank nothing else is called.
    """

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        ...

    def any(self, flags: Sequence[bool]) -> Sequence[bool]:
        """Return, for each flag, whether it is set on any rank."""
        ...

    def all_reduce(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Return, for each dense tensor, its mean over the ranks."""
        ...


def check_arguments(on_horovod: Any, reduction: Any) -> None:
    """Raise unless ``on_horovod`` is True and ``reduction`` is an engine or None."""
    if not isinstance(on_horovod, Integral | NoneType):
        raise refusals.REDUCED_WITHOUT_RANKS.error(got=on_horovod)
    if not on_horovod:
        raise refusals.NOT_REDUCED.error()
    check_engine(reduction)


def check_engine(reduction: Any, subject: str = f"{REDUCE}: reduction") -> None:
    """Raise for an engine that lacks an attribute; its ``size`` is not evaluated."""
    missing = [part for part in ENGINE if part not in dir(reduction)]
    is_class = isinstance(reduction, type)
    if reduction is not None and (missing or is_class):
        lacks = "which is no instance" if is_class else f"without {', '.join(missing)}"
        kind = (
            reduction.__name__ if is_class else with_article(type(reduction).__name__)
        )
        raise refusals.BAD_ENGINE.error(subject=subject, kind=kind, lacks=lacks)
