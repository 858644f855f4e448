"""The data of a run on any backend, from one seed: images, batches, first weights."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from harness.tasks.digits import CLASSES, INPUTS, Images, split
from harness.tasks.stable_rates.settings import Settings
from lockstep.interface import Array

__all__ = ["Plan", "make_plan"]


class Plan(NamedTuple):
    """All data of a run; the same at every rate and for every method.

    Attributes:
        training, held_out: the images, with another split for every seed.
        batches: [steps, batch] int32, indices of training images. Every epoch is a
            permutation of them; a batch may continue into the next epoch.
        weights: the hidden layers and the last layer: [inputs, outputs] float32.
    """

    training: Images
    held_out: Images
    batches: Array
    weights: list[Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, k)) for k in range(3)]
    training, held_out = split(streams[0])
    images = len(training.digit)
    epochs = [streams[1].permutation(images) for _ in range(settings.epochs)]
    order = np.concatenate(epochs).astype(np.int32)[: settings.steps * settings.batch]
    batches = order.reshape(settings.steps, settings.batch)
    return Plan(training, held_out, batches, _first_weights(settings, streams[2]))


def _first_weights(settings: Settings, stream: np.random.Generator) -> list[Array]:
    """Return normal weights of deviation 1 / sqrt(inputs)."""
    sizes = [INPUTS, *[settings.width] * settings.depth, CLASSES]
    return [
        (stream.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        for inputs, outputs in pairwise(sizes)
    ]
