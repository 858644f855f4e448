"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.deep_digits import laws
from harness.tasks.digits import CLASSES, INPUTS, Images, split
from harness.tasks.loss_scales import ScaledSettings
from harness.tasks.settings import (
    require,
    require_counts,
    require_number,
    require_spread,
    spread,
)
from lockstep.interface import Array


@dataclass(frozen=True)
class Settings(ScaledSettings):
    """The settings of one run.

    Attributes:
        method: as in ``ScaledSettings``.
        loss_log2: the loss is multiplied by 2**loss_log2, and ``rate`` divided by it.
        rate: the learning rate of SGD with momentum 0.9, before this division.
        depth: the number of hidden layers.
        width: the units of each layer.
        batch: images per step.
        steps: optimizer steps; the middle one has an infinite loss.
        checkpoints: the number of measurements, at equal distances.
    """

    loss_log2: int
    rate: float
    depth: int
    width: int
    batch: int
    steps: int
    checkpoints: int

    def __post_init__(self) -> None:
        require_counts(self, "depth", "width", "batch", "steps", "checkpoints")
        require_spread(self.checkpoints, self.steps)
        whole = isinstance(self.loss_log2, int)
        require(whole, "loss_log2", "a whole number", self.loss_log2)
        require_number(self, "rate")
        # For orthogonal first weights there must be a unit for each class, and no more
        # units than inputs.
        fits = CLASSES <= self.width <= INPUTS
        require(fits, "width", f"from {CLASSES} to {INPUTS} units", self.width)
        self.check_method()

    @property
    def overflow(self) -> int:
        """The index of the step with an infinite loss."""
        return self.steps // 2

    @property
    def measured_at(self) -> list[int]:
        """The steps after which the run is measured, including 0."""
        return spread(self.checkpoints, self.steps)


GAINS = (0.5, 1.1, 1.0)
"""The gains of the orthogonal first weights; above 1, so that activations of a deep
tanh net do not vanish."""


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
    weights: tuple[Array, Array, Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, k)) for k in range(3)]
    training, held_out = split(streams[0])
    size = (settings.steps, settings.batch)
    batches = streams[1].integers(len(training.digit), size=size, dtype=np.int32)
    factors = np.full(settings.steps, 2.0**settings.loss_log2, np.float32)
    factors[settings.overflow] = np.inf
    weights = _first_weights(settings, streams[2])
    return Plan(training, held_out, batches, factors, weights)


def _first_weights(
    settings: Settings, stream: np.random.Generator
) -> tuple[Array, Array, Array]:
    width = settings.width
    shapes = (INPUTS, width), (settings.depth, width, width), (width, CLASSES)
    first, hidden, last = (
        gain * np.linalg.qr(stream.standard_normal(shape)).Q
        for gain, shape in zip(GAINS, shapes, strict=True)
    )
    return first.astype(np.float16), hidden.astype(np.float16), last.astype(np.float16)


class Taken(NamedTuple):
    """The result of an optimizer step: the next scale, and whether it was applied."""

    scale: float
    applied: bool


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite.

    Series: ``step``, ``loss`` (held out, nats), ``accuracy`` (held out, a share),
    ``scale`` (of the next step), ``skipped`` (steps so far), ``zero/weights`` and
    ``zero/activations`` (the share of zero gradients of one batch).
    Summary: the last value of each series, the values of :func:`around` and, in
    float32, the counts of :func:`harness.tasks.deep_digits.laws.count`.
    """
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    plan = make_plan(settings, seed)
    trainer = module.Trainer(settings, plan, device)
    taken: list[Taken] = []
    scales = [trainer.scale()]
    rows: list[dict[str, float]] = []
    counts: dict[str, int] = {}
    for start, stop in [(0, 0), *pairwise(settings.measured_at)]:
        taken += trainer.advance(start, stop) if stop else []
        skipped = sum(not step.applied for step in taken)
        gradients = _gradients(trainer, plan, stop)
        loss, accuracy = trainer.measure()
        scale = taken[-1].scale if taken else scales[0]
        rows.append(
            {
                "step": float(stop),
                "loss": loss,
                "accuracy": accuracy,
                "scale": scale,
                "skipped": float(skipped),
                **{
                    f"zero/{kind}": laws.zeros(each) for kind, each in gradients.items()
                },
            }
        )
        if settings.dtype == "float32":
            laws.count(counts, gradients)
        if not np.isfinite(loss):
            reason = f"a held-out loss was not finite after step {stop}"
            return Outcome("diverged", reason, _columns(rows))
    scales += [step.scale for step in taken]
    summary = {**rows[-1], **around(scales, settings.overflow), **counts}
    return Outcome("ok", "", _columns(rows), summary)


def around(scales: Sequence[float], overflow: int) -> dict[str, float]:
    """Return the reaction of a scale to one overflow; ``scales[k]`` is for step k.

    The scale ``before`` and ``after`` the step and its ``lowest`` value since;
    ``mean_log2`` of all steps; and ``recovery``, the steps from the overflow until the
    scale is above half of ``before`` again: 0 if it did not fall, NaN if it does not
    recover.
    """
    values = np.asarray(scales, float)
    before, later = values[overflow], values[overflow + 1 :]
    back = np.flatnonzero(later > before / 2)
    usable = values[np.isfinite(values)]
    return {
        "before": float(before),
        "after": float(later[0]),
        "lowest": float(later.min()),
        "mean_log2": float(np.log2(usable).mean()),
        "recovery": float(back[0]) if len(back) else float("nan"),
    }


def _gradients(trainer: Any, plan: Plan, step: int) -> dict[str, Array]:
    """Return the flat gradients of weights and activations for a step's batch."""
    rows = plan.batches[min(step, len(plan.batches) - 1)]
    gradients: dict[str, Array] = trainer.gradients(rows, plan.factors[0])
    return gradients


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
