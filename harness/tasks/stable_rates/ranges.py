"""The stable range: the rates around the best one that reach an accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Range", "stable_range"]


class Range(NamedTuple):
    """The stable range of a sweep.

    Attributes:
        best: the highest accuracy, at ``best_rate``; the lowest of equally good rates.
        lowest, highest: the ends of the range around it; 0 if no rate is good enough.
    """

    best: float
    best_rate: float
    lowest: float
    highest: float

    @property
    def width(self) -> float:
        """The factor by which the rate may change; 0 if no rate is good enough."""
        return self.highest / self.lowest if self.lowest else 0.0


def stable_range(
    rates: Sequence[float], accuracies: Sequence[float], least: float
) -> Range:
    """Return the rates around the best one whose accuracy is at least ``least``.

    Args:
        rates: learning rates in increasing order.
        accuracies: shares, one per rate.
        least: a share. The range ends at the first rate below it, even if rates
            beyond are better.
    """
    values = np.asarray(accuracies, float)
    best = int(values.argmax())
    low = high = best
    if values[best] < least:
        return Range(float(values[best]), rates[best], 0.0, 0.0)
    while low > 0 and values[low - 1] >= least:
        low -= 1
    while high < len(values) - 1 and values[high + 1] >= least:
        high += 1
    return Range(float(values[best]), rates[best], rates[low], rates[high])
