"""Interfaces and messages of AGN's center, which holds the shared weights."""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping
from typing import Any, NamedTuple, Self

__all__ = [
    "CenterLock",
    "CenterOfProcess",
    "Update",
    "unused_name",
]


class Update(NamedTuple):
    """A worker's push at the end of a round of ``communication_period`` steps.

    Attributes:
        changes: name of a variable -> an array of its shape and dtype: the mean
            gradient, or the change to add to the shared weights.
        optimizer: the worker's optimizer, or its description, which applies the mean
            gradients. None if ``changes`` are added to the weights.
    """

    changes: Mapping[str, Any]
    optimizer: Any


class CenterOfProcess:
    """Default methods of a center in the workers' own process.

    Only a center in another process overrides them.

    Attributes:
        saves_itself: whether the center saves its state, so that workers do not.
    """

    saves_itself = False

    def for_worker(self) -> Self:
        """Return the center for another worker."""
        return self

    def begin(
        self, commit: str, optimizer: Any = None, clips_rows: bool = True
    ) -> None:
        """Prepare for a worker's pushes.

        Args:
            commit: the kind of the worker's pushes.
            optimizer: the worker's optimizer; the center's own is created like it.
            clips_rows: whether row clipping inside of it clips shared rows.
        """

    def leave(self) -> None:
        """Note that a worker is done."""

    def numbers(self) -> dict[str, float]:
        """Return the numbers of the last push for logging, by tag."""
        return {}


class CenterLock:
    """A lock for pushes and pulls, for one thread at a time.

    A copy of a center gets a new lock; a lock is neither pickled nor saved.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[CenterLock], tuple[()]]:
        return CenterLock, ()


def unused_name(name: str, taken: Container[str]) -> str:
    """Return the name of a variable at the center, with a number if it is taken.

    Names may repeat within a worker. Workers that register their variables in the same
    order get the same names.
    """
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}#{count}"
    return candidate
