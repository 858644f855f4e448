"""What a center counts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.interface import Array

__all__ = ["Activity", "Counters", "size"]

RECENT = 60.0
"""Seconds after its last push in which a worker is called active."""


@dataclass
class Counters:
    """Counts of a center since it was made, those of its checkpoint included.

    Attributes:
        rounds: pushes that were applied.
        repeated: pushes that came a second time and were left out.
        nonfinite: pushes with inf or NaN, which were refused or left out.
        bytes_pushed: of the changes that were applied.
        bytes_pulled: of the weights that were sent, with replies to pushes.
        staleness: s -> how many pushes had gradients that were s rounds old: so many
            pushes of others came between the worker's pull and its push.
    """

    rounds: int = 0
    repeated: int = 0
    nonfinite: int = 0
    bytes_pushed: int = 0
    bytes_pulled: int = 0
    staleness: dict[int, int] = field(default_factory=dict)

    def count_round(self, since: int, pushed: int) -> int:
        """Count a push that was applied, and return how stale it was.

        Args:
            since: the number of rounds when its worker last pulled.
            pushed: its bytes.
        """
        # A center that went back to its checkpoint may be younger than the worker.
        stale = max(0, self.rounds - since)
        self.staleness[stale] = self.staleness.get(stale, 0) + 1
        self.rounds += 1
        self.bytes_pushed += pushed
        return stale

    def saved(self) -> dict[str, Any]:
        """Return the counts as numbers."""
        return asdict(self)


class Activity:
    """When each worker pushed last: a center does not hear of a worker's death."""

    def __init__(self) -> None:
        self._pushed: dict[str, float] = {}

    def note(self, worker: str) -> None:
        """Enter that a worker has just pushed."""
        self._pushed[worker] = time.monotonic()

    def forget(self, worker: str) -> None:
        """Leave out a worker that is done."""
        self._pushed.pop(worker, None)

    def count(self) -> int:
        """Return how many workers pushed within the last minute."""
        since = time.monotonic() - RECENT
        return sum(pushed > since for pushed in self._pushed.values())


def size(arrays: Iterable[Array]) -> int:
    """Return the bytes of arrays."""
    return sum(array.nbytes for array in arrays)
