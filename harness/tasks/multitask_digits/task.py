"""Three tasks on handwritten digits, each present in a step with probability p.

A shared trunk has three heads: the digit, whether it is odd, and the vertical center of
the ink. The loss of an absent task is masked, so its head is fed exact zeros. Each task
also has a *probe*: one weight with a linear loss. Its gradient is -1 if the task is
present and 0 if it is absent, independently of the net, so it moves as ``laws`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, StrictInt

from harness.records.record import Outcome
from harness.tasks import digits
from harness.tasks.absent_heads.training import (
    Wrapper,
    draw_weights,
    trainer_of,
    walk,
)
from harness.tasks.schema import Count, Even, Measured, Optimizer, require, settings
from lockstep.interface import Array

TASKS = ("digit", "parity", "centre")
ABSENTEE = "parity"


@settings
class Settings(Measured):
    """The settings of one run.

    Attributes:
        presence: the probability p that a task is present in a step.
        absence: the numbers of further steps, without parity, after which the state is
            measured.
        batch: images per step.
        hidden: the width of the trunk.
    """

    optimizer: Optimizer
    wrapper: Wrapper
    presence: Annotated[float, Field(strict=True, gt=0, le=1)]
    absence: Annotated[list[StrictInt], Field(min_length=1)]
    checkpoints: Even
    batch: Count
    hidden: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = all(a < b for a, b in pairwise([0, *self.absence]))
        require(rising, "absence", "rising numbers of steps", self.absence)

    @property
    def measured_at(self) -> list[int]:
        return super().measured_at + [self.steps + k for k in self.absence]


class Images(NamedTuple):
    """A set of n digits.

    Attributes:
        features: [n, 65] float32, 64 standardised pixels and a constant 1 (the bias).
        digit: [n] int32, 0 to 9.
        parity: [n] float32, 1 for an odd digit.
        centre: [n] float32, the row of the ink's center of mass, standardised.
    """

    features: Array
    digit: Array
    parity: Array
    centre: Array


class Plan(NamedTuple):
    """All data of a run.

    Attributes:
        training, held_out: the images, with another split for every seed.
        presence: [steps, 3] float32, 1 if a task is present. Parity is absent from the
            last steps. Schedules of one seed are nested: a task that is present at a
            smaller p is also present at a larger p.
        batches: [steps, batch] int32, indices of training images.
        weights: initial values by name: ``trunk``, ``head/TASK`` and ``probe/TASK``.
    """

    training: Images
    held_out: Images
    presence: Array
    batches: Array
    weights: dict[str, Array]


def make_plan(of: Settings, seed: int) -> Plan:
    streams = [np.random.default_rng((seed, stream)) for stream in range(4)]
    training, held_out = _images(streams[0])
    steps = of.steps + of.absence[-1]
    present = streams[1].random((steps, len(TASKS))) < of.presence
    present[of.steps :, TASKS.index(ABSENTEE)] = False
    shape, images = (steps, of.batch), len(training.digit)
    batches = streams[2].integers(images, size=shape, dtype=np.int32)
    shapes = {"trunk": (digits.INPUTS, of.hidden)}
    outputs = zip(TASKS, (digits.CLASSES, 1, 1), strict=True)
    shapes |= {f"head/{task}": (of.hidden + 1, width) for task, width in outputs}
    weights = draw_weights(streams[3], shapes)
    weights |= {f"probe/{task}": np.zeros((), np.float32) for task in TASKS}
    return Plan(training, held_out, present.astype(np.float32), batches, weights)


def _images(stream: np.random.Generator) -> list[Images]:
    """Split the digits and standardise both parts by the moments of the first one."""
    parts = digits.split(stream)
    ink = [8 * (part.features[:, :-1].astype(float) + 1) for part in parts]
    rows = [each.reshape(-1, 8, 8).sum(axis=2) for each in ink]
    centres = [each @ np.arange(8) / each.sum(axis=1) for each in rows]
    return [
        Images(
            np.pad(_standardised(pixels, ink[0]), ((0, 0), (0, 1)), constant_values=1),
            part.digit,
            (part.digit % 2).astype(np.float32),
            _standardised(centre, centres[0]),
        )
        for part, pixels, centre in zip(parts, ink, centres, strict=True)
    ]


def _standardised(values: Array, reference: Array) -> Array:
    deviation = reference.std(axis=0)
    scale = np.where(deviation > 0, deviation, 1)
    return np.asarray((values - reference.mean(axis=0)) / scale, np.float32)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite.

    Series: ``loss/TASK``, the mean over the held-out images (nats, nats, variances);
    ``probe/TASK``, the probe's weight; ``path/TASK``, the sum over the steps of the
    2-norm of the head's movement; ``informative/TASK``; ``state/head/SLOT``, the
    2-norm of the slots of parity's head.
    """
    of = Settings(**config)
    trainer = trainer_of("multitask_digits", of, backend, device)
    return walk(of, make_plan(of, seed), trainer, TASKS)
