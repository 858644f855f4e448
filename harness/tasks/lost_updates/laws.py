"""The law of the updates that float16 loses.

A weight w in [2^e, 2^(e+1)) has neighbours at a distance of 2^(e-10). An update u is
lost if w - u rounds back to w: if u < 2^(e-11), that is w / u > 2048 (w / 2^e). So no
update is lost up to a ratio of 2048, and all are lost beyond 4096. In between the share
is log2(w / u) - 11, because log2 of the weights is uniform. A tie rounds to the even
neighbour, which is w if w is a power of two.
"""

from __future__ import annotations

import numpy as np

from harness.tasks.lost_updates.data import Plan

__all__ = ["lost_in_float16", "share_lost"]


def share_lost(ratio: float) -> float:
    """Return the share of lost updates at a ratio weight / update."""
    return float(np.clip(np.log2(ratio) - 11, 0.0, 1.0))


def lost_in_float16(plan: Plan) -> float:
    """Return the share of a plan's updates that NumPy's float16 loses."""
    difference = plan.weights.astype(np.float64) - plan.updates.astype(np.float64)
    return float(np.mean(difference.astype(np.float16) == plan.weights))
