"""The words of averaging gradients over ranks, and the seam for what does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lockstep.spec.errors import NotReducedError, UnsupportedError, sentence

__all__ = ["REDUCE", "Reduction", "not_reduced", "wrong_answer"]

REDUCE = "reduce_gradients"


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


def not_reduced() -> NotReducedError:
    """Build the error for gradients that were to be reduced without ranks."""
    expected = "on_horovod=True"
    remedy = "gradients of several towers in one process were never reduced; add them"
    return NotReducedError(sentence(REDUCE, expected, "False", remedy))


def wrong_answer(expected: int, got: int) -> UnsupportedError:
    """Build the error for an engine that answers another number of tensors."""
    remedy = "return one mean for each tensor, in their order"
    text = f"{expected} means from reduction.all_reduce"
    return UnsupportedError(sentence(REDUCE, text, str(got), remedy))
