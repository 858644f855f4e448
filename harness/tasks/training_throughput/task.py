"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends, digits
from harness.tasks.byte_transformer.data import (
    Shape,
    draw_windows,
    first_weights,
    split,
)
from harness.tasks.settings import require_counts
from harness.timing import AGAIN, Rounds, Step, build_steps, low_quantile
from lockstep.errors import unknown_name
from lockstep.interface import Array

WORKLOADS = {
    "multitask": "three heads on digits, one of them absent; the wrapper is the "
    "multitask wrapper",
    "embeddings": "two tables of 20,000 rows, of which a batch names 768; the wrapper "
    "clips these rows",
    "transformer": "the byte transformer, all weights in the precision; the wrapper "
    "adds a dynamic loss scale (fp32), float32 masters (bf16) or both (fp16)",
}
"""The workloads, each with its bare and its wrapped variant."""

BATCH = {"multitask": 128, "embeddings": 256, "transformer": 8}
"""Examples per step: images, pairs of rows, windows of 64 bytes."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        workload: one of ``WORKLOADS``.
        precision: one of ``DTYPES``, for weights and activations. A CPU is not timed in
            fp16.
        rounds: the number of timed steps of each variant.
    """

    workload: str
    precision: str
    rounds: int

    def __post_init__(self) -> None:
        if self.workload not in WORKLOADS:
            raise unknown_name("workload", self.workload, WORKLOADS)
        if self.precision not in DTYPES:
            raise unknown_name("precision", self.precision, DTYPES)
        require_counts(self, "rounds")

    @property
    def batch(self) -> int:
        """Examples per step."""
        return BATCH[self.workload]

    @property
    def dtype(self) -> str:
        """The dtype of weights and activations."""
        return DTYPES[self.precision]


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

CONTROL = f"bare{AGAIN}"
"""A second bare step, whose difference from the first is noise."""

VARIANTS = ("bare", "wrapped", CONTROL)


class Trainer(Protocol):
    """The net and optimizer on one backend."""

    def step(self) -> None:
        """Take a whole step: forward, backward and update; return when finished."""
        ...

    def loss(self) -> float:
        """Return the loss in nats of the batch."""
        ...


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a loss after it is not finite.

    Summary: ``rate/VARIANT``, examples per second by the tenth percentile of the times
    of the rounds, and ``loss/VARIANT`` at the end. Nothing is timed in fp16 on a CPU,
    where float16 products are not optimized.
    """
    settings = Settings(**config)
    if settings.precision == "fp16" and device == "cpu":
        return Outcome("ok", "float16 is not timed on a CPU")
    module = backends.model(__package__, backend)
    plan = make_plan(settings, seed)
    trainers: list[tuple[str, Trainer]] = []

    def made(name: str) -> Step:
        trainer = module.Trainer(settings, plan, device, name == "wrapped")
        trainers.append((name, trainer))
        step: Step = trainer.step
        return step

    makers = {name: partial(made, name) for name in ("bare", "wrapped")}
    build = partial(build_steps, makers, VARIANTS)
    rounds = Rounds(build, between_builds=settings.rounds, seed=seed)
    for _ in range(settings.rounds):
        rounds()
    losses = {f"loss/{name}": trainer.loss() for name, trainer in trainers}
    if not np.isfinite(list(losses.values())).all():
        return Outcome("diverged", "a loss was not finite at the end", {})
    rates = {
        f"rate/{name}": settings.batch / low_quantile(seconds)
        for name, seconds in rounds.seconds.items()
    }
    return Outcome("ok", "", {}, {**rates, **losses})
