"""The counts of a center."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.interface import Array

__all__ = ["Activity", "Counters", "size"]

RECENT = 60.0
"""A worker is active for this many seconds after its last push."""


@dataclass
class Counters:
    """Counts of a center since its creation, including those of its checkpoint.

    Attributes:
        rounds: applied pushes.
        repeated: pushes that arrived a second time and were skipped.
        nonfinite: pushes with inf or NaN, which were refused or skipped.
        bytes_pushed: bytes of the applied changes.
        bytes_pulled: bytes of the sent weights, including replies to pushes.
        staleness: s -> the number of pushes with a staleness of s, which is the number
            of other workers' pushes between a worker's pull and its push.
    """

    rounds: int = 0
    repeated: int = 0
    nonfinite: int = 0
    bytes_pushed: int = 0
    bytes_pulled: int = 0
    staleness: dict[int, int] = field(default_factory=dict)

    def count_round(self, since: int, pushed: int) -> int:
        """Count an applied push, and return its staleness.

        Args:
            since: the number of rounds when its worker last pulled.
            pushed: its bytes.
        """
        # A center that was restored from its checkpoint may have fewer rounds.
        stale = max(0, self.rounds - since)
        self.staleness[stale] = self.staleness.get(stale, 0) + 1
        self.rounds += 1
        self.bytes_pushed += pushed
        return stale

    def saved(self) -> dict[str, Any]:
        """Return the counts as a dict of numbers."""
        return asdict(self)


class Activity:
    """The times of the workers' last pushes; a center cannot see a worker's death."""

    def __init__(self) -> None:
        self._pushed: dict[str, float] = {}

    def note(self, worker: str) -> None:
        """Record that a worker has just pushed."""
        self._pushed[worker] = time.monotonic()

    def forget(self, worker: str) -> None:
        """Remove a worker that is done."""
        self._pushed.pop(worker, None)

    def count(self) -> int:
        """Return the number of workers that pushed within the last minute."""
        since = time.monotonic() - RECENT
        return sum(pushed > since for pushed in self._pushed.values())


def size(arrays: Iterable[Array]) -> int:
    """Return the total size of arrays in bytes."""
    return sum(array.nbytes for array in arrays)
