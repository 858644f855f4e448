"""The data of a run on any backend, from one seed: windows of text and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from harness.tasks.byte_transformer.data import (
    draw_windows,
    first_weights,
    held_out_windows,
    split,
)
from harness.tasks.mixed_precision_text.settings import Settings
from lockstep.interface import Array

__all__ = ["Plan", "make_plan"]


class Plan(NamedTuple):
    """All data of a run.

    Attributes:
        windows: [steps, batch, context + 1] int32, the training batches.
        held_out: [windows, context + 1] int32, the same for every seed.
        weights: by name, exact in float16 and bfloat16. So training in any dtype begins
            with the same values.
    """

    windows: Array
    held_out: Array
    weights: Mapping[str, Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, k)) for k in range(2)]
    text, context = split(), settings.context
    sizes = (settings.steps, settings.batch, context)
    windows = draw_windows(text.training, *sizes, streams[0])
    held_out = held_out_windows(text.held_out, settings.windows, context)
    weights = first_weights(settings.shape, streams[1])
    return Plan(windows, held_out, {n: _rounded(w) for n, w in weights.items()})


def _rounded(values: Array) -> Array:
    """Round to eight significant bits, as bfloat16 has, and to float16."""
    fraction, exponent = np.frexp(values)
    rounded = np.ldexp(np.round(fraction * 256) / 256, exponent)
    return rounded.astype(np.float16).astype(np.float32)
