"""The data of a run on any backend: images, digits and batches, from one seed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.tasks.digits import Images, split
from harness.tasks.policy_digits.settings import Settings
from lockstep.interface import Array

__all__ = ["Plan", "make_plan"]


class Plan(NamedTuple):
    """All data of a run; the first weights are zeros.

    Attributes:
        training, held_out: the images, with another split for every seed.
        batches: [steps, batch] int32, indices of training images.
    """

    training: Images
    held_out: Images
    batches: Array


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, k)) for k in range(2)]
    training, held_out = split(streams[0])
    size = (settings.steps, settings.batch)
    batches = streams[1].integers(len(training.digit), size=size, dtype=np.int32)
    return Plan(training, held_out, batches)
