"""The data of a run on any backend, from one seed: images, digits, batches, weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.tasks.deep_digits.settings import Settings
from harness.tasks.digits import CLASSES, INPUTS, Images, split
from lockstep.interface import Array

__all__ = ["Plan", "make_plan"]


GAINS = (0.5, 1.1, 1.0)
"""The gains of the orthogonal first weights; above 1, so that activations of a deep
tanh net do not vanish."""


class Plan(NamedTuple):
    """All data of a run.

    Attributes:
        training, held_out: the images, with another split for every seed.
        batches: [steps, batch] int32, indices of training images.
        factors: [steps] float32, the factor of each step's loss; one is inf.
        weights: [65, width], [depth, width, width] and [width, 10], float16. So
            training in any dtype begins with the same values.
    """

    training: Images
    held_out: Images
    batches: Array
    factors: Array
    weights: tuple[Array, Array, Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, k)) for k in range(3)]
    training, held_out = split(streams[0])
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
