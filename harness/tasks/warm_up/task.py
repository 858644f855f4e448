"""A byte transformer under several optimizers, with and without warm-up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.byte_transformer.data import Shape, make_plan
from harness.tasks.schema import Count, Number, Positive, require, settings


@settings
class Settings:
    """The settings of one run.

    Attributes:
        optimizer: Lockstep's NovoGrad or one of the framework's, with its defaults but
            no weight decay; SGD has momentum 0.9.
        warm_up: the share of the steps in which the rate rises to ``learning_rate``,
            where it stays; 0 for no warm-up.
        learning_rate: the highest rate.
        batch: windows of text per step.
        width, layers, heads, context: the sizes of the transformer.
        windows: the number of held-out windows of the final measurement.
    """

    optimizer: Literal["NovoGrad", "AdamW", "SGD"]
    warm_up: Annotated[Number, Field(ge=0, lt=1)]
    learning_rate: Positive
    steps: Count
    batch: Count
    width: Count
    layers: Count
    heads: Count
    context: Count
    windows: Count

    def __post_init__(self) -> None:
        whole = self.width % self.heads == 0
        require(whole, "width", f"a multiple of {self.heads} heads", self.width)

    @property
    def shape(self) -> Shape:
        return Shape(self.width, self.layers, self.heads, self.context)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0.

        With warm-up over n steps it is min(1, (step + 1) / n) times the highest rate.
        """
        rising = round(self.warm_up * self.steps)
        return self.learning_rate * min(1.0, (step + 1) / max(rising, 1))


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a loss is not finite.

    Summary: ``bits``, the final held-out loss in bits per byte, and the bytes of the
    optimizer's ``state`` and of the ``weights``.
    """
    of = Settings(**config)
    model = backends.model("warm_up", backend)
    trainer = model.Trainer(of, make_plan(of, seed), device)
    taken = trainer.train()
    if taken < of.steps:
        return Outcome("diverged", f"the loss was not finite after {taken} steps")
    summary = trainer.measure()
    if not math.isfinite(summary["bits"]):
        return Outcome("diverged", "the held-out loss was not finite")
    return Outcome("ok", "", {}, summary)
