"""One batch and the first weights of each workload in NumPy, for all backends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.tasks import digits
from harness.tasks.byte_transformer.data import (
    Shape,
    draw_windows,
    first_weights,
    split,
)
from harness.tasks.training_throughput.settings import Settings
from lockstep.interface import Array

__all__ = [
    "LIMIT",
    "MOMENTUM",
    "PRESENT",
    "RATE",
    "SHAPE",
    "Plan",
    "make_plan",
]

HIDDEN = 256
"""The width of the trunk of the three heads."""

ROWS, WIDTH = 20_000, 64
"""The shape of each table of embeddings."""

LIMIT = 1.0
"""The largest norm of an unchanged row."""

PRESENT = (1.0, 0.0, 1.0)
"""The factor of each head's loss; the second head is absent."""

SHAPE = Shape()

RATE, MOMENTUM = 0.01, 0.9
"""Arguments of the base optimizer; embeddings are trained without momentum."""


class Plan(NamedTuple):
    """The data of a run.

    Attributes:
        weights: the first weights by name, float32.
        batch: arrays by name; the trainer casts floats to the dtype of the run.
    """

    weights: dict[str, Array]
    batch: dict[str, Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    stream = np.random.default_rng(seed)
    return PLANS[settings.workload](settings.batch, stream)


def _multitask(batch: int, stream: np.random.Generator) -> Plan:
    images, _ = digits.split(stream)
    shapes = {"trunk": (digits.INPUTS, HIDDEN), "digit": (HIDDEN, digits.CLASSES)}
    shapes |= {"parity": (HIDDEN, 1), "ink": (HIDDEN, 1)}
    weights = {
        name: (stream.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    features, digit = (part[:batch] for part in images)
    parity = (digit % 2).astype(np.float32)
    ink = features.mean(axis=1)
    return Plan(
        weights, {"features": features, "digit": digit, "parity": parity, "ink": ink}
    )


def _embeddings(batch: int, stream: np.random.Generator) -> Plan:
    # Initial norms equal the limit, so many rows grow beyond it and are clipped.
    tables = {name: stream.standard_normal((ROWS, WIDTH)) for name in ("user", "item")}
    weights = {
        name: (LIMIT * table / np.linalg.norm(table, axis=1, keepdims=True))
        for name, table in tables.items()
    }
    names = ("users", "items", "others")
    ids = {name: stream.integers(ROWS, size=batch, dtype=np.int32) for name in names}
    return Plan({n: w.astype(np.float32) for n, w in weights.items()}, ids)


def _transformer(batch: int, stream: np.random.Generator) -> Plan:
    text = split().training
    windows = draw_windows(text, 1, batch, SHAPE.context, stream)[0]
    return Plan(first_weights(SHAPE, stream), {"windows": windows})


PLANS = {
    "multitask": _multitask,
    "embeddings": _embeddings,
    "transformer": _transformer,
}
