"""What both hosts are fed: images, digits and batches, from one seed."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

from harness.tasks.policy_digits.settings import Settings
from lockstep.interface import Array

__all__ = ["CLASSES", "INPUTS", "Images", "Plan", "make_plan"]

INPUTS, CLASSES = 65, 10
HELD_OUT = 360


class Images(NamedTuple):
    """A set of n digits.

    Attributes:
        features: [n, 65] float32, 64 pixels between -1 and 1 and a constant 1.
        digit: [n] int32, 0 to 9.
    """

    features: Array
    digit: Array


class Plan(NamedTuple):
    """Everything that a run consumes; the first weights are zeros.

    Attributes:
        training, held_out: the images, split anew for every seed.
        batches: [steps, batch] int32, indices of training images.
    """

    training: Images
    held_out: Images
    batches: Array


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the plan of one run."""
    images, streams = _digits(), [np.random.default_rng((seed, k)) for k in range(2)]
    order = streams[0].permutation(len(images.digit))
    training, held_out = (
        Images(images.features[rows], images.digit[rows])
        for rows in (order[HELD_OUT:], order[:HELD_OUT])
    )
    size = (settings.steps, settings.batch)
    batches = streams[1].integers(len(training.digit), size=size, dtype=np.int32)
    return Plan(training, held_out, batches)


@cache
def _digits() -> Images:
    digits = load_digits()
    pixels = np.pad(digits.data / 8 - 1, ((0, 0), (0, 1)), constant_values=1)
    return Images(pixels.astype(np.float32), digits.target.astype(np.int32))
