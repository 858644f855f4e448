"""The data of a run on any backend, from one seed: windows of text, first weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.tasks.byte_transformer.data import (
    draw_windows,
    first_weights,
    held_out_windows,
    split,
)
from harness.tasks.warm_up.settings import Settings
from lockstep.interface import Array

__all__ = ["Plan", "make_plan"]


class Plan(NamedTuple):
    """All data of a run; the same for every optimizer and rate.

    Attributes:
        batches: [steps, batch, context + 1] int32, the training windows.
        held_out: [windows, context + 1] int32, the same for every seed.
        weights: the first weights of the transformer by name.
    """

    batches: Array
    held_out: Array
    weights: dict[str, Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, k)) for k in range(2)]
    text, context = split(), settings.context
    size = settings.steps, settings.batch
    batches = draw_windows(text.training, *size, context, streams[0])
    held_out = held_out_windows(text.held_out, settings.windows, context)
    return Plan(batches, held_out, first_weights(settings.shape, streams[1]))
