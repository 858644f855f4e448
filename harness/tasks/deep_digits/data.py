"""What both hosts are fed: images, digits, batches and first weights, from one seed."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

from harness.tasks.deep_digits.settings import Settings
from lockstep.interface import Array

__all__ = ["Images", "Plan", "make_plan"]

INPUTS, CLASSES = 65, 10
HELD_OUT = 360

GAINS = (0.5, 1.1, 1.0)
"""Of the orthogonal first weights: above 1 keeps a deep tanh net from going quiet."""


class Images(NamedTuple):
    """A set of n digits.

    Attributes:
        features: [n, 65] float32, 64 pixels between -1 and 1 and a constant 1.
        digit: [n] int32, 0 to 9.
    """

    features: Array
    digit: Array


class Plan(NamedTuple):
    """Everything that a run consumes.

    Attributes:
        training, held_out: the images, split anew for every seed.
        batches: [steps, batch] int32, indices of training images.
        factors: [steps] float32, what each step's loss is multiplied by; one is inf.
        weights: [65, width], [depth, width, width] and [width, 10], float16: whatever
            the dtype of the training, it begins at the same numbers.
    """

    training: Images
    held_out: Images
    batches: Array
    factors: Array
    weights: tuple[Array, Array, Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the plan of one run."""
    images, streams = _digits(), [np.random.default_rng((seed, k)) for k in range(3)]
    order = streams[0].permutation(len(images.digit))
    training, held_out = (
        Images(images.features[rows], images.digit[rows])
        for rows in (order[HELD_OUT:], order[:HELD_OUT])
    )
    size = (settings.steps, settings.batch)
    batches = streams[1].integers(len(training.digit), size=size, dtype=np.int32)
    factors = np.full(settings.steps, 2.0**settings.loss_log2, np.float32)
    factors[settings.overflow] = np.inf
    weights = _first_weights(settings, streams[2])
    return Plan(training, held_out, batches, factors, weights)


def _first_weights(
    settings: Settings, stream: np.random.Generator
) -> tuple[Array, Array, Array]:
    width = settings.width
    shapes = (INPUTS, width), (settings.depth, width, width), (width, CLASSES)
    first, hidden, last = (
        gain * np.linalg.qr(stream.standard_normal(shape)).Q
        for gain, shape in zip(GAINS, shapes, strict=True)
    )
    return first.astype(np.float16), hidden.astype(np.float16), last.astype(np.float16)


@cache
def _digits() -> Images:
    digits = load_digits()
    pixels = np.pad(digits.data / 8 - 1, ((0, 0), (0, 1)), constant_values=1)
    return Images(pixels.astype(np.float32), digits.target.astype(np.int32))
