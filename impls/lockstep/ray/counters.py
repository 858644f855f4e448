"""What a center counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from lockstep.interface import Array

__all__ = ["Counters", "size"]


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


def size(arrays: Iterable[Array]) -> int:
    """Return the bytes of arrays."""
    return sum(array.nbytes for array in arrays)
