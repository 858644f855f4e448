"""A small causal transformer on bytes of text, trained in several precisions.

Some steps have an infinite gradient, to test how each loss scale reacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends, training
from harness.tasks.byte_transformer.data import (
    Shape,
    draw_windows,
    first_weights,
    held_out_windows,
    split,
)
from harness.tasks.loss_scales import Method, ScaledSettings
from harness.tasks.schema import (
    Count,
    Positive,
    require,
    require_spread,
    settings,
    spread,
)
from lockstep.interface import Array


class TextMethod(Method, total=False):
    """The precision and the loss scale of a run.

    ``masters``: whether half-precision weights have float32 masters, true by default.
    """

    masters: bool


@settings
class Settings(ScaledSettings):
    method: TextMethod
    rate: Positive  # of Adam
    epsilon: Positive  # Adam's, the same in every dtype; representable in float16
    width: Count
    layers: Count
    context: Count
    batch: Count
    windows: Count  # held-out ones
    overflows: Count  # steps with an infinite gradient, at equal distances
    target: Positive  # no longer used; part of the ids of runs
    steps: Count
    checkpoints: Count

    def __post_init__(self) -> None:
        require_spread(self.checkpoints, self.steps)
        heads = self.shape.heads
        expected = f"a multiple of {heads}, the number of heads"
        require(self.width % heads == 0, "width", expected, self.width)
        fewer = self.overflows < self.steps
        require(fewer, "overflows", "fewer than steps", self.overflows)
        self.check_method()

    @property
    def masters(self) -> bool:
        """Whether half-precision weights have float32 masters."""
        return self.method.get("masters", True)

    @property
    def shape(self) -> Shape:
        return Shape(width=self.width, layers=self.layers, context=self.context)

    @property
    def overflow_steps(self) -> list[int]:
        """The steps with an infinite gradient, counted from 0."""
        parts = self.overflows + 1
        return [self.steps * k // parts for k in range(1, parts)]

    @property
    def measured_at(self) -> list[int]:
        return spread(self.checkpoints, self.steps)


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


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if the held-out bits are not finite.

    Series: ``step``, ``bits`` (held-out bits per byte), ``scale`` (of the next step)
    and ``skipped`` (steps so far). Summary: the last value of each series.
    """
    of = Settings(**config)
    plan = make_plan(of, seed)
    trainer = backends.model("mixed_precision_text", backend).Trainer(of, plan, device)

    def measure(_: int) -> dict[str, float]:
        skipped = float(trainer.skipped)
        return {"bits": trainer.bits(), "scale": trainer.scale(), "skipped": skipped}

    outcome = training.walk(of.measured_at, trainer.advance, measure, ["bits"])
    if outcome.status != "ok":
        return outcome
    last = {name: float(column[-1]) for name, column in outcome.series.items()}
    return replace(outcome, summary=last)
