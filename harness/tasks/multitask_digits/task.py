"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from harness.records.metrics import Metric
from harness.records.record import Outcome, Record
from harness.tasks import backends
from harness.tasks.absent_heads.arms import NONE, WRAPPED, WRAPPERS, loss_weights
from harness.tasks.digits import HELD_OUT
from harness.tasks.settings import bound, require, require_counts, spread
from lockstep.errors import unknown_name
from lockstep.interface import Array
from lockstep.optimizers import OPTIMIZERS

TASKS = ("digit", "parity", "centre")

ABSENTEE = "parity"


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        optimizer: name of an optimizer of TensorFlow 1, and its arguments.
        wrapper: ``default`` or ``strict``, the multitask wrapper in this mode;
            ``none``, zeros are fed; or ``mean``, zeros are fed and the loss is the mean
            over present tasks.
        presence: the probability p that a task is present in a step.
        steps: optimizer steps of training.
        absence: the numbers of further steps, without parity, after which the state is
            measured.
        checkpoints: the number of measurements during training, at equal distances;
            even, so that one is at half time.
        batch: images per step.
        hidden: the width of the trunk.
    """

    optimizer: Mapping[str, Any]
    wrapper: str
    presence: float
    steps: int
    absence: list[int]
    checkpoints: int
    batch: int
    hidden: int

    def __post_init__(self) -> None:
        if self.wrapper not in WRAPPERS:
            raise unknown_name("wrapper", self.wrapper, WRAPPERS)
        require_counts(self, "steps", "checkpoints", "batch", "hidden")
        even = self.checkpoints % 2 == 0 and self.steps % self.checkpoints == 0
        got = f"{self.checkpoints} for {self.steps} steps"
        require(even, "checkpoints", "an even number that divides steps", got)
        within = isinstance(self.presence, int | float) and 0 < self.presence <= 1
        require(within, "presence", "a probability in (0, 1]", self.presence)
        listed = isinstance(self.absence, list) and len(self.absence) > 0
        whole = listed and all(type(steps) is int for steps in self.absence)
        rising = whole and all(a < b for a, b in pairwise([0, *self.absence]))
        require(rising, "absence", "rising numbers of steps", self.absence)
        object.__setattr__(self, "presence", float(self.presence))
        object.__setattr__(self, "optimizer", bound(self.optimizer))

    @property
    def measured_at(self) -> list[int]:
        """The steps after which everything is measured, including 0."""
        training = spread(self.checkpoints, self.steps)
        return training + [self.steps + k for k in self.absence]


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


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, stream)) for stream in range(4)]
    training, held_out = _split(streams[0])
    steps = settings.steps + settings.absence[-1]
    present = streams[1].random((steps, len(TASKS))) < settings.presence
    present[settings.steps :, TASKS.index(ABSENTEE)] = False
    count = len(training.digit)
    batches = streams[2].integers(count, size=(steps, settings.batch), dtype=np.int32)
    weights = _weights(streams[3], settings.hidden)
    return Plan(training, held_out, present.astype(np.float32), batches, weights)


def _split(stream: np.random.Generator) -> tuple[Images, Images]:
    """Split the digits and standardise both parts by the moments of the first one."""
    pixels, digit, centre = _digits()
    order = stream.permutation(len(digit))
    training = order[HELD_OUT:]
    features = _standardise(pixels, pixels[training])
    features = np.pad(features, ((0, 0), (0, 1)), constant_values=1)
    images = Images(features, digit, digit % 2, _standardise(centre, centre[training]))
    kinds = (np.float32, np.int32, np.float32, np.float32)
    parts = [
        Images(*(a[rows].astype(kind) for a, kind in zip(images, kinds, strict=True)))
        for rows in (training, order[:HELD_OUT])
    ]
    return parts[0], parts[1]


@cache
def _digits() -> tuple[Array, Array, Array]:
    """Return pixels [n, 64], digits [n] and vertical centres of the ink [n]."""
    from sklearn.datasets import load_digits  # Settings are read without it.

    digits = load_digits()
    ink = digits.images.sum(axis=2)
    centre = ink @ np.arange(8) / ink.sum(axis=1)
    return digits.data, digits.target, centre


def _standardise(values: Array, reference: Array) -> Array:
    deviation = reference.std(axis=0)
    centred: Array = values - reference.mean(axis=0)
    return centred / np.where(deviation > 0, deviation, 1)


def _weights(stream: np.random.Generator, hidden: int) -> dict[str, Array]:
    """Draw weights of variance 1/inputs; each layer's last input is the bias."""
    shapes = {
        "trunk": (65, hidden),
        "head/digit": (hidden + 1, 10),
        "head/parity": (hidden + 1, 1),
        "head/centre": (hidden + 1, 1),
    }
    weights = {
        name: (stream.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }
    return weights | {f"probe/{task}": np.zeros((), np.float32) for task in TASKS}


def _loss(record: Record) -> float:
    """Return the mean of the tasks' final held-out losses."""
    if record.status != "ok":
        return np.inf
    last = int(record.config["checkpoints"])
    return float(np.mean([record.series[f"loss/{task}"][last] for task in TASKS]))


def _head_movement(record: Record) -> float:
    """Return the heads' path per informative step in the second half of training.

    NaN if no task was present there.
    """
    if record.status != "ok":
        return np.inf
    last = int(record.config["checkpoints"])
    path, steps = (
        sum(
            record.series[f"{kind}/{task}"][last]
            - record.series[f"{kind}/{task}"][last // 2]
            for task in TASKS
        )
        for kind in ("path", "informative")
    )
    return path / steps if steps else np.nan


def _relative_movement(record: Record) -> float:
    """Return the heads' movement in units of the arm's learning rate."""
    rate = float(record.config["optimizer"]["learning_rate"])
    return _head_movement(record) / rate


METRICS = {
    "loss": Metric(_loss, "nats, mean of the three tasks", "smaller"),
    "head movement": Metric(_head_movement, "distance per informative step", "smaller"),
    "relative movement": Metric(
        _relative_movement, "learning rates per informative step", "smaller"
    ),
}
"""The metrics by which runs are compared."""


class Recipe(NamedTuple):
    """The recipe from which a backend builds its model and optimizer.

    Attributes:
        optimizer, arguments: the class of the optimizer, and its arguments by name.
        wrapper: ``none``, or the multitask wrapper, ``default`` or ``strict``.
        slots: names of the optimizer's slots, the same on every backend.
    """

    optimizer: str
    arguments: Mapping[str, Any]
    wrapper: str
    slots: Sequence[str]


class Trainer(Protocol):
    """The model and optimizer on one backend."""

    def reset(self, plan: Plan) -> None:
        """Use the images and the initial weights of a plan; reset all state."""
        ...

    def advance(self, batches: Array, weights: Array) -> None:
        """Train on len(batches) batches; ``weights`` scale the tasks' losses."""
        ...

    def measure(self) -> Mapping[str, float]:
        """Return name -> measured value after the steps so far.

        ``loss/TASK``: mean over the held-out images (nats, nats, variances).
        ``probe/TASK``: the probe's weight. ``path/TASK``: sum over the steps of the
        2-norm of the head's movement. ``state/probe/SLOT``, ``state/head/SLOT``: the
        2-norm of the slots of parity's probe and head.
        """
        ...


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite."""
    settings = Settings(**config)
    plan = make_plan(settings, seed)
    weights = loss_weights(plan.presence, settings.wrapper)
    optimizer = tuple(settings.optimizer.items())
    wrapper = settings.wrapper if settings.wrapper in WRAPPED else NONE
    trainer = _trainer(backend, device, optimizer, wrapper, settings.hidden)
    trainer.reset(plan)
    rows = [_row(plan, 0, trainer)]
    for start, stop in pairwise(settings.measured_at):
        trainer.advance(plan.batches[start:stop], weights[start:stop])
        rows.append(_row(plan, stop, trainer))
        if not all(np.isfinite(rows[-1][f"loss/{task}"]) for task in TASKS):
            reason = f"a held-out loss was not finite after step {stop}"
            return Outcome("diverged", reason, _columns(rows))
    trained = rows[settings.checkpoints]
    summary = {f"loss/{task}": trained[f"loss/{task}"] for task in TASKS}
    return Outcome("ok", "", _columns(rows), summary)


@cache
def _trainer(
    backend: str,
    device: str,
    optimizer: tuple[tuple[str, Any], ...],
    wrapper: str,
    hidden: int,
) -> Trainer:
    """Return the trainer of these arguments, shared by runs so that it compiles once.

    ``hidden`` is part of the key because a compiled step has fixed shapes.
    """
    module = backends.model(__package__, backend)
    arguments = dict(optimizer)
    spec = OPTIMIZERS[arguments.pop("name")]
    slots = [slot.name for slot in spec.active_slots(arguments)]
    recipe = Recipe(spec.class_name, arguments, wrapper, slots)
    trainer: Trainer = module.DigitsTrainer(recipe, device)
    return trainer


def _row(plan: Plan, step: int, trainer: Trainer) -> dict[str, float]:
    """Measure after ``step`` steps; ``informative/TASK`` counts a task's steps."""
    presences = plan.presence[:step].sum(axis=0, dtype=np.int64)
    counts = {f"informative/{t}": int(n) for t, n in zip(TASKS, presences, strict=True)}
    return {"step": step, **counts, **trainer.measure()}


def _columns(rows: list[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
