"""DynSGD.

J. Jiang, B. Cui, C. Zhang, L. Yu, "Heterogeneity-aware Distributed Parameter Servers",
SIGMOD 2017: a push of staleness s counts 1 / (s + 1), so c = rule(c, a / (s + 1)) where
DOWNPOUR has c = rule(c, a).
"""

from __future__ import annotations

import numpy as np

from harness.simulator.gathering import Gathering
from lockstep.interface import Array

__all__ = ["DynSGD"]


class DynSGD(Gathering):
    """Push the sum of a round; the server divides it by its staleness + 1."""

    def weighed(self, change: Array, staleness: int) -> Array:
        """Return change / (staleness + 1)."""
        return np.asarray(change / change.dtype.type(staleness + 1))
