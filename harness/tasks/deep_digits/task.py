"""A deep narrow net on handwritten digits, whose gradients underflow in float16.

The loss is multiplied by a small power of two, and the learning rate is divided by it.
In float32 this changes nothing. In float16 most gradients become 0 without a scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, StrictInt

from harness.records.record import Outcome
from harness.tasks import backends, training
from harness.tasks.digits import CLASSES, INPUTS, Images, split
from harness.tasks.loss_scales import Method, ScaledSettings, make_scale
from harness.tasks.schema import Count, Measured, Positive, require, settings
from lockstep import reference
from lockstep.interface import Array

GAINS = (0.5, 1.1, 1.0)
"""The gains of the orthogonal first weights; above 1, so that activations of a deep
tanh net do not vanish."""

LOWEST, HIGHEST = -70, 10
"""The outermost bins of a histogram of floor(log2 |g|), which are open."""


@settings
class Settings(ScaledSettings, Measured):
    """The settings of one run, in whose middle one step has an infinite loss.

    Attributes:
        loss_log2: the loss is multiplied by 2**loss_log2, and ``rate`` divided by it.
        rate: the learning rate of SGD with momentum 0.9, before this division.
        depth: the number of hidden layers.
        width: the units of each layer. For orthogonal first weights there must be a
            unit for each class, and no more units than inputs.
        batch: images per step.
    """

    method: Method
    loss_log2: StrictInt
    rate: Positive
    depth: Count
    width: Annotated[StrictInt, Field(ge=CLASSES, le=INPUTS)]
    batch: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        half = self.dtype != "bfloat16"
        require(half, "method.dtype", "float32 or float16", self.dtype)
        make_scale(self.method, reference)

    @property
    def overflow(self) -> int:
        """The index of the step with an infinite loss."""
        return self.steps // 2


class Plan(NamedTuple):
    """All data of a run.

    Attributes:
        training, held_out: the images, with another split for every seed.
        batches: [steps, batch] int32, indices of training images.
        factors: [steps] float32, the factor of each step's loss; one is inf.
        weights: [65, width], [depth, width, width] and [width, 10], float16. So
            training in any dtype begins with the same values.
    """

    training: Images
    held_out: Images
    batches: Array
    factors: Array
    weights: list[Array]


def make_plan(of: Settings, seed: int) -> Plan:
    streams = [np.random.default_rng((seed, k)) for k in range(3)]
    training, held_out = split(streams[0])
    size = (of.steps, of.batch)
    batches = streams[1].integers(len(training.digit), size=size, dtype=np.int32)
    factors = np.full(of.steps, 2.0**of.loss_log2, np.float32)
    factors[of.overflow] = np.inf
    shapes = (INPUTS, of.width), (of.depth, of.width, of.width), (of.width, CLASSES)
    weights = [
        (gain * np.linalg.qr(streams[2].standard_normal(shape)).Q).astype(np.float16)
        for gain, shape in zip(GAINS, shapes, strict=True)
    ]
    return Plan(training, held_out, batches, factors, weights)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite.

    Series: ``step``, ``loss`` (held out, nats), ``scale`` (of the next step) and
    ``skipped`` (steps so far). Summary: the last value of each series, the values of
    :func:`around` and, in float32, the counts of :func:`count`.
    """
    of = Settings(**config)
    plan = make_plan(of, seed)
    model = backends.model("deep_digits", backend)
    trainer = training.once(
        ("deep_digits", config, backend, device), lambda: model.Trainer(of, device)
    )
    trainer.reset(plan)
    scales, counts = [trainer.scale()], dict[str, int]()

    def advance(start: int, stop: int) -> None:
        scales.extend(trainer.advance(start, stop))

    def measure(step: int) -> dict[str, float]:
        if of.dtype == "float32":
            rows = plan.batches[min(step, of.steps - 1)]
            count(counts, trainer.gradients(rows, plan.factors[0]))
        return {
            "loss": trainer.measure(),
            "scale": scales[-1],
            "skipped": float(step - trainer.applied()),
        }

    outcome = training.walk(of.measured_at, advance, measure)
    if outcome.status != "ok":
        return outcome
    summary = {name: column[-1] for name, column in outcome.series.items()}
    summary |= around(scales, of.overflow)
    return Outcome("ok", "", outcome.series, {**summary, **counts})


def around(scales: Sequence[float], overflow: int) -> dict[str, float]:
    """Return the reaction of a scale to one overflow; ``scales[k]`` is for step k.

    The scale ``before`` the step, and ``recovery``, the steps from the overflow until
    the scale is above half of ``before`` again: 0 if it did not fall, NaN if it does
    not recover.
    """
    values = np.asarray(scales, float)
    before, later = values[overflow], values[overflow + 1 :]
    back = np.flatnonzero(later > before / 2)
    recovery = float(back[0]) if len(back) else float("nan")
    return {"before": float(before), "recovery": recovery}


def count(counts: dict[str, int], gradients: Array) -> None:
    """Add a histogram of floor(log2 |g|) to ``counts``: weights/EXPONENT."""
    mantissa, exponent = np.frexp(np.abs(gradients[np.isfinite(gradients)]))
    # frexp's mantissa is in [0.5, 1), so the floor of log2 is one less.
    bins = np.clip(exponent[mantissa > 0] - 1, LOWEST, HIGHEST)
    for each, number in zip(*np.unique(bins, return_counts=True), strict=True):
        key = f"weights/{each}"
        counts[key] = counts.get(key, 0) + int(number)
