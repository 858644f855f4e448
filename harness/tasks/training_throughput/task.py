"""Whole training steps of three tasks, with and without a wrapper, timed in turns.

Multitask digits, embeddings with rows of limited norm, and a byte transformer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends, digits
from harness.tasks.byte_transformer.data import (
    Shape,
    draw_windows,
    first_weights,
    split,
)
from harness.tasks.schema import Count, settings
from harness.timing import AGAIN, Rounds, Step, build_steps, low_quantile
from lockstep.interface import Array

Workload = Literal[
    "multitask",  # three heads on digits, one of them absent; the multitask wrapper
    "embeddings",  # two large tables; the wrapper clips the rows that a batch names
    # The byte transformer, all weights in the precision. The wrapper adds a dynamic
    # loss scale (fp32), float32 masters (bf16) or both (fp16).
    "transformer",
]

BATCH = {"multitask": 128, "embeddings": 256, "transformer": 8}
"""Examples per step: images, pairs of rows, windows of 64 bytes."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

CONTROL = f"bare{AGAIN}"
"""A second bare step, whose difference from the first is noise."""

VARIANTS = ("bare", "wrapped", CONTROL)

SHAPE = Shape()

HIDDEN, PRESENT = 256, (1.0, 0.0, 1.0)
"""The width of the three heads' trunk; the factor of each loss, 0 for an absent one."""

ROWS, WIDTH, LIMIT = 20_000, 64, 1.0
"""The shape of each table of embeddings; the largest norm of an unchanged row."""

RATE, MOMENTUM = 0.01, 0.9
"""Arguments of the base optimizer; embeddings are trained without momentum."""


@settings
class Settings:
    """The settings of one run; ``rounds`` are the timed steps of each variant.

    Weights and activations have the precision. A CPU is not timed in fp16.
    """

    workload: Workload
    precision: Literal["fp32", "bf16", "fp16"]
    rounds: Count

    @property
    def dtype(self) -> str:
        return DTYPES[self.precision]


def wrap(names: ModuleType, base: Any, of: Settings, rows: Mapping[Any, Any]) -> Any:
    """Return our wrapper of a workload around an optimizer.

    Args:
        names: a backend, such as ``lockstep.pytorch``.
        rows: the axes of the tables whose rows are clipped.
    """
    if of.workload == "embeddings":
        return names.VariableClippingOptimizer(base, rows, LIMIT)
    if of.workload == "multitask":
        return names.MultitaskOptimizerWrapper(base)
    if of.precision == "fp32":
        return names.MixedPrecisionLossScaleOptimizer(base, "dynamic")
    scale = "dynamic" if of.precision == "fp16" else None
    return names.MixedPrecisionOptimizerWrapper(base, scale)


class Plan(NamedTuple):
    """The first weights, float32, and a batch, whose floats the trainer casts."""

    weights: dict[str, Array]
    batch: dict[str, Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    plans = {"multitask": _heads, "embeddings": _tables, "transformer": _windows}
    stream = np.random.default_rng(seed)
    return plans[settings.workload](BATCH[settings.workload], stream)


def _heads(batch: int, stream: np.random.Generator) -> Plan:
    images, _ = digits.split(stream)
    shapes = {"trunk": (digits.INPUTS, HIDDEN), "digit": (HIDDEN, digits.CLASSES)}
    shapes |= {"parity": (HIDDEN, 1), "ink": (HIDDEN, 1)}
    weights = {
        name: (stream.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)
        for name, shape in shapes.items()
    }
    features, digit = (part[:batch] for part in images)
    parity, ink = (digit % 2).astype(np.float32), features.mean(axis=1)
    return Plan(
        weights, {"features": features, "digit": digit, "parity": parity, "ink": ink}
    )


def _tables(batch: int, stream: np.random.Generator) -> Plan:
    # Initial norms equal the limit, so many rows grow beyond it and are clipped.
    tables = {name: stream.standard_normal((ROWS, WIDTH)) for name in ("user", "item")}
    weights = {
        name: (LIMIT * table / np.linalg.norm(table, axis=1, keepdims=True))
        for name, table in tables.items()
    }
    names = ("users", "items", "others")
    ids = {name: stream.integers(ROWS, size=batch, dtype=np.int32) for name in names}
    return Plan({n: w.astype(np.float32) for n, w in weights.items()}, ids)


def _windows(batch: int, stream: np.random.Generator) -> Plan:
    windows = draw_windows(split().training, 1, batch, SHAPE.context, stream)[0]
    return Plan(first_weights(SHAPE, stream), {"windows": windows})


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a loss after it is not finite.

    Summary: ``rate/VARIANT``, examples per second by the tenth percentile of the times
    of the rounds, and ``loss/VARIANT`` at the end. Nothing is timed in fp16 on a CPU,
    where float16 products are not optimized.
    """
    of = Settings(**config)
    if of.precision == "fp16" and device == "cpu":
        return Outcome("ok", "float16 is not timed on a CPU")
    module, plan = backends.model("training_throughput", backend), make_plan(of, seed)
    trainers: list[tuple[str, Any]] = []

    def made(name: str) -> Step:
        trainer = module.Trainer(of, plan, device, name == "wrapped")
        trainers.append((name, trainer))
        step: Step = trainer.step
        return step

    makers = {name: partial(made, name) for name in ("bare", "wrapped")}
    build = partial(build_steps, makers, VARIANTS)
    rounds = Rounds(build, between_builds=of.rounds, seed=seed)
    for _ in range(of.rounds):
        rounds()
    losses = {f"loss/{name}": trainer.loss() for name, trainer in trainers}
    if not np.isfinite(list(losses.values())).all():
        return Outcome("diverged", "a loss was not finite at the end", {})
    rates = {
        f"rate/{name}": BATCH[of.workload] / low_quantile(seconds)
        for name, seconds in rounds.seconds.items()
    }
    return Outcome("ok", "", {}, {**rates, **losses})
