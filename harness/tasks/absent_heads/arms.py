"""The compared arms: how a step handles absent tasks."""

from __future__ import annotations

import numpy as np

from lockstep.interface import Array

__all__ = ["MEAN", "NONE", "WRAPPED", "WRAPPERS", "loss_weights"]

NONE, MEAN = "none", "mean"
"""Zeros are fed for absent tasks. With ``mean``, the loss of a step is the mean over
the present tasks; otherwise it is their sum."""

WRAPPED = ("default", "strict")
"""The two modes of the multitask wrapper; the loss of a step is the sum."""

WRAPPERS = (NONE, MEAN, *WRAPPED)


def loss_weights(presence: Array, wrapper: str) -> Array:
    """Return the factor of each task's loss: [steps, tasks] float32.

    Args:
        presence: [steps, tasks], 1 where a task is present and 0 where it is absent.
        wrapper: one of ``WRAPPERS``.
    """
    weights = presence.astype(np.float32)
    if wrapper != MEAN:
        return weights
    counts = np.maximum(weights.sum(axis=1, keepdims=True), 1)
    return np.asarray(weights / counts, np.float32)
