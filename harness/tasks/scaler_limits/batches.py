"""The batches of a run, which are also its gradients, because the loss is linear."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from harness.tasks.scaler_limits.settings import Settings

__all__ = ["NAMES", "SHAPE", "Batches", "longer_than", "make"]

NAMES = ("trunk", "head")
SHAPE = (2, 4)
"""Two weights of four elements."""

Batches = npt.NDArray[np.float32]


def make(settings: Settings, seed: int) -> Batches:
    """Return the batch of each step, [steps, weights, elements].

    An overflow is an inf only in the head's gradient, as from the square root of 0. So
    it overflows at any scale.
    """
    rng = np.random.default_rng(seed)
    if settings.situation == "clipping":
        # Sizes from a tenth of the limit to ten times the limit.
        sizes = settings.clip_norm * 10 ** rng.uniform(-1, 1, settings.after)
        gradients = rng.standard_normal((settings.after, *SHAPE))
        norms = np.sqrt((gradients**2).sum(axis=(1, 2)))
        return np.asarray(gradients * (sizes / norms)[:, None, None], np.float32)
    before, limit = settings.before, settings.limit
    gradients = rng.standard_normal((before + limit + settings.after, *SHAPE))
    if settings.situation == "zeros":
        gradients[before : before + limit] = 0
    else:
        gradients[before : before + limit, NAMES.index("head"), 0] = np.inf
    return np.asarray(gradients, np.float32)


def longer_than(batches: Batches, clip_norm: float) -> int:
    """Return the number of gradients that a clip shortens."""
    norms = np.sqrt((batches.astype(np.float64) ** 2).sum(axis=(1, 2)))
    return int((norms > clip_norm).sum())
