"""The data of a run on any backend: images, targets, schedule, batches, weights.

Everything is in NumPy and depends on one seed, so all backends do the same work.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

from harness.tasks.digits import HELD_OUT
from harness.tasks.multitask_digits.settings import ABSENTEE, TASKS, Settings
from lockstep.interface import Array

__all__ = ["Images", "Plan", "make_plan"]


class Images(NamedTuple):
    """A set of n digits.

    Attributes:
        features: [n, 65] float32, 64 standardised pixels and a constant 1 (the bias).
        digit: [n] int32, 0 to 9.
        parity: [n] float32, 1 for an odd digit.
        centre: [n] float32, the row of the ink's center of mass, standardised.
    """

    features: Array
    digit: Array
    parity: Array
    centre: Array


class Plan(NamedTuple):
    """All data of a run.

    Attributes:
        training, held_out: the images, with another split for every seed.
        presence: [steps, 3] float32, 1 if a task is present. Parity is absent from the
            last steps. Schedules of one seed are nested: a task that is present at a
            smaller p is also present at a larger p.
        batches: [steps, batch] int32, indices of training images.
        weights: initial values by name: ``trunk``, ``head/TASK`` and ``probe/TASK``.
    """

    training: Images
    held_out: Images
    presence: Array
    batches: Array
    weights: dict[str, Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, stream)) for stream in range(4)]
    training, held_out = _split(streams[0])
    steps = settings.steps + settings.absence[-1]
    present = streams[1].random((steps, len(TASKS))) < settings.presence
    present[settings.steps :, TASKS.index(ABSENTEE)] = False
    count = len(training.digit)
    batches = streams[2].integers(count, size=(steps, settings.batch), dtype=np.int32)
    weights = _weights(streams[3], settings.hidden)
    return Plan(training, held_out, present.astype(np.float32), batches, weights)


def _split(stream: np.random.Generator) -> tuple[Images, Images]:
    """Split the digits and standardise both parts by the moments of the first one."""
    pixels, digit, centre = _digits()
    order = stream.permutation(len(digit))
    training = order[HELD_OUT:]
    features = _standardise(pixels, pixels[training])
    features = np.pad(features, ((0, 0), (0, 1)), constant_values=1)
    images = Images(features, digit, digit % 2, _standardise(centre, centre[training]))
    kinds = (np.float32, np.int32, np.float32, np.float32)
    parts = [
        Images(*(a[rows].astype(kind) for a, kind in zip(images, kinds, strict=True)))
        for rows in (training, order[:HELD_OUT])
    ]
    return parts[0], parts[1]


@cache
def _digits() -> tuple[Array, Array, Array]:
    """Return pixels [n, 64], digits [n] and vertical centres of the ink [n]."""
    digits = load_digits()
    ink = digits.images.sum(axis=2)
    centre = ink @ np.arange(8) / ink.sum(axis=1)
    return digits.data, digits.target, centre


def _standardise(values: Array, reference: Array) -> Array:
    deviation = reference.std(axis=0)
    centred: Array = values - reference.mean(axis=0)
    return centred / np.where(deviation > 0, deviation, 1)


def _weights(stream: np.random.Generator, hidden: int) -> dict[str, Array]:
    """Draw weights of variance 1/inputs; each layer's last input is the bias."""
    shapes = {
        "trunk": (65, hidden),
        "head/digit": (hidden + 1, 10),
        "head/parity": (hidden + 1, 1),
        "head/centre": (hidden + 1, 1),
    }
    weights = {
        name: (stream.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }
    return weights | {f"probe/{task}": np.zeros((), np.float32) for task in TASKS}
