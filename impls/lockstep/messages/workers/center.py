"""The words of AGN's center: the weights that all workers share, and their lock."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from lockstep.messages.errors import UnsupportedError
from lockstep.messages.workers import refusals

__all__ = [
    "Center",
    "CenterLock",
    "CenterOfProcess",
    "Update",
    "other_groups",
    "unused_name",
]


class Update(NamedTuple):
    """What one worker pushes at the end of a round of ``communication_period`` steps.

    Attributes:
        changes: name of a variable -> what is committed, an array of its shape and
            dtype: the mean gradient, or what is added to the shared weights.
        optimizer: whose rule takes the mean gradients: what the host needs to know of
            the worker's optimizer. None where ``changes`` are added as they are.
    """

    changes: Mapping[str, Any]
    optimizer: Any


class Center(Protocol):
    """The weights that all workers share, and the state of the rule that moves them.

    These two calls are all that a worker asks of them between its rounds. Within one
    process they are an object that several workers hold. What stands between two
    processes (:mod:`lockstep.ray`) puts the name of the worker and the number of its
    round beside an update, so that one that arrives twice is dropped.
    """

    def pull(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Return the shared weights of these names as they are now."""
        ...

    def push(self, update: Update) -> None:
        """Move the shared weights; variables that are not named stay as they are."""
        ...


class CenterOfProcess:
    """What only a center in another process does: here it is not needed.

    Attributes:
        saves_itself: whether its state is no part of a worker's.
    """

    saves_itself = False

    def for_worker(self) -> Self:
        """Return the center as one more worker holds it."""
        return self

    def begin(
        self, commit: str, optimizer: Any = None, clips_rows: bool = True
    ) -> None:
        """Let a worker push.

        Args:
            commit: what it pushes.
            optimizer: what moves the shared weights by mean gradients is made like it.
            clips_rows: whether row clipping inside of it clips shared rows.
        """

    def leave(self) -> None:
        """Hear that a worker is done."""

    def numbers(self) -> dict[str, float]:
        """Return what there is to log of the last push, by tag."""
        return {}


class CenterLock:
    """Lets one thread at a time push to a center, or pull from it.

    A copy of a center has a lock of its own; nothing of it is pickled or saved.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[CenterLock], tuple[()]]:
        return CenterLock, ()


def other_groups(expected: Sequence[str], got: Sequence[str]) -> UnsupportedError:
    """Build the error for an optimizer whose groups are not those of the others."""
    texts = [", ".join(names) or "none" for names in (expected, got)]
    return refusals.OTHER_GROUPS.error(expected=texts[0], got=texts[1])


def unused_name(name: str, taken: Container[str]) -> str:
    """Return the name of a variable at the center, with a number if it is taken.

    Names may repeat within a worker. Workers whose variables come in one order agree.
    """
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}#{count}"
    return candidate
