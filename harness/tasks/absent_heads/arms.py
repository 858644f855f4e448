"""The arms that are compared: what a step does about the tasks that it lacks."""

from __future__ import annotations

import numpy as np

from lockstep.interface import Array

__all__ = ["MEAN", "NONE", "WRAPPED", "WRAPPERS", "loss_weights"]

NONE, MEAN = "none", "mean"
"""Zeros are fed for absent tasks. With ``mean`` the loss of a step is the mean over the
tasks that are present; else it is their sum."""

WRAPPED = ("default", "strict")
"""The multitask wrapper in its modes; the loss of a step is the sum."""

WRAPPERS = (NONE, MEAN, *WRAPPED)


def loss_weights(presence: Array, wrapper: str) -> Array:
    """Return what the loss of each task is multiplied by: [steps, tasks] float32.

    Args:
        presence: [steps, tasks], 1 where a task is present and 0 where it is absent.
        wrapper: one of ``WRAPPERS``.
    """
    weights = presence.astype(np.float32)
    if wrapper != MEAN:
        return weights
    counts = np.maximum(weights.sum(axis=1, keepdims=True), 1)
    return np.asarray(weights / counts, np.float32)
