"""A small causal transformer on bytes of text, trained in several precisions.

Some steps have an infinite gradient, to test how each loss scale reacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends, training
from harness.tasks.byte_transformer import data
from harness.tasks.byte_transformer.data import Plan, Shape
from harness.tasks.loss_scales import Method, ScaledSettings, make_scale
from harness.tasks.schema import Count, Measured, Positive, require, settings
from lockstep import reference
from lockstep.interface import Array


class TextMethod(Method, total=False):
    """The precision and the loss scale of a run.

    ``masters``: whether half-precision weights have float32 masters, true by default.
    """

    masters: bool


@settings
class Settings(ScaledSettings, Measured):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        heads = self.shape.heads
        expected = f"a multiple of {heads}, the number of heads"
        require(self.width % heads == 0, "width", expected, self.width)
        fewer = self.overflows < self.steps
        require(fewer, "overflows", "fewer than steps", self.overflows)
        make_scale(self.method, reference)

    @property
    def shape(self) -> Shape:
        return Shape(width=self.width, layers=self.layers, context=self.context)

    @property
    def overflow_steps(self) -> list[int]:
        """The steps with an infinite gradient, counted from 0."""
        parts = self.overflows + 1
        return [self.steps * k // parts for k in range(1, parts)]


def make_plan(of: Settings, seed: int) -> Plan:
    """Draw the data of a run, whose weights are exact in float16 and bfloat16.

    So training in any dtype begins with the same values.
    """
    plan = data.make_plan(of, seed)
    return plan._replace(weights={n: _rounded(w) for n, w in plan.weights.items()})


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
    outcome = training.walk(
        of.measured_at, trainer.advance, lambda _: trainer.measure(), ["bits"]
    )
    if outcome.status != "ok":
        return outcome
    last = {name: float(column[-1]) for name, column in outcome.series.items()}
    return replace(outcome, summary=last)
