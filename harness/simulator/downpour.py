"""DOWNPOUR.

J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012, with the intervals
of fetching and pushing equal: after P local steps the worker sends a = sum g_t and the
server has c = rule(c, a).
"""

from __future__ import annotations

from harness.simulator.gathering import Gathering

__all__ = ["Downpour"]


class Downpour(Gathering):
    """Push the sum of a round, as it is."""
