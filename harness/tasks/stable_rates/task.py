"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.digits import CLASSES, INPUTS, Images, split
from harness.tasks.settings import require, require_counts, require_label
from lockstep.errors import unknown_name
from lockstep.interface import Array
from lockstep.reference.larc import larc_policy

IMAGES = 1437
"""The number of training images of ``harness.tasks.digits``; the rest is held out."""

KEYS = ("label", "clip_gradients", "larc_params")

FEWEST = 2
"""The fewest rates of a sweep, because a single rate has no range."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        method: ``label``, and the arguments ``clip_gradients`` and ``larc_params`` of
            ``post_process_gradients``; without both it is not called.
        batch: images per step.
        epochs: the passes over all images; so larger batches mean fewer steps.
        depth: the number of hidden tanh layers.
        width: the units of each layer.
        momentum: the momentum of SGD.
        rates: learning rates in increasing order; a new net is trained at each.
        margin: the distance from the best accuracy that an arm may have; a run reports
            the range of rates within it.
    """

    method: Mapping[str, Any]
    batch: int
    epochs: int
    depth: int
    width: int
    momentum: float
    rates: Sequence[float]
    margin: float

    def __post_init__(self) -> None:
        require_counts(self, "batch", "epochs", "depth", "width")
        expected = "a batch or more of images in all epochs"
        require(self.steps > 0, "epochs", expected, f"{self.epochs} of {IMAGES}")
        for name in ("momentum", "margin"):
            _require_share(name, getattr(self, name))
        self._check_rates()
        self._check_method()

    def _check_rates(self) -> None:
        several = isinstance(self.rates, Sequence) and len(self.rates) >= FEWEST
        numbers = several and all(map(_is_positive, self.rates))
        increasing = numbers and list(self.rates) == sorted(set(self.rates))
        expected = f"{FEWEST} or more numbers > 0 in increasing order"
        require(increasing, "rates", expected, self.rates)

    def _check_method(self) -> None:
        table = isinstance(self.method, Mapping)
        require(table, "method", "a table with a label", self.method)
        for key in self.method:
            if key not in KEYS:
                raise unknown_name("key of method", key, KEYS)
        require_label("method.label", self.method.get("label"))
        limit = self.clip_gradients
        fits = limit is None or _is_positive(limit)
        require(fits, "method.clip_gradients", "a finite number > 0", limit)
        if self.larc_params is not None:
            larc_policy(self.larc_params, strict=False)

    @property
    def label(self) -> str:
        """The name of the method."""
        return str(self.method["label"])

    @property
    def clip_gradients(self) -> float | None:
        """The largest global norm of the gradients; None if they are not clipped."""
        limit: float | None = self.method.get("clip_gradients")
        return limit

    @property
    def larc_params(self) -> Mapping[str, Any] | None:
        """The parameters of LARC; None without it."""
        parameters: Mapping[str, Any] | None = self.method.get("larc_params")
        return parameters

    @property
    def steps(self) -> int:
        """Optimizer steps at each rate: the full batches of all epochs."""
        return self.epochs * IMAGES // self.batch


def _require_share(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    require(number and 0 <= value < 1, name, "a number from 0 to below 1", value)


def _is_positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf


class Plan(NamedTuple):
    """All data of a run; the same at every rate and for every method.

    Attributes:
        training, held_out: the images, with another split for every seed.
        batches: [steps, batch] int32, indices of training images. Every epoch is a
            permutation of them; a batch may continue into the next epoch.
        weights: the hidden layers and the last layer: [inputs, outputs] float32.
    """

    training: Images
    held_out: Images
    batches: Array
    weights: list[Array]


def make_plan(settings: Settings, seed: int) -> Plan:
    """Draw the data of one run."""
    streams = [np.random.default_rng((seed, k)) for k in range(3)]
    training, held_out = split(streams[0])
    images = len(training.digit)
    epochs = [streams[1].permutation(images) for _ in range(settings.epochs)]
    order = np.concatenate(epochs).astype(np.int32)[: settings.steps * settings.batch]
    batches = order.reshape(settings.steps, settings.batch)
    return Plan(training, held_out, batches, _first_weights(settings, streams[2]))


def _first_weights(settings: Settings, stream: np.random.Generator) -> list[Array]:
    """Return normal weights of deviation 1 / sqrt(inputs)."""
    sizes = [INPUTS, *[settings.width] * settings.depth, CLASSES]
    return [
        (stream.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        for inputs, outputs in pairwise(sizes)
    ]


class Range(NamedTuple):
    """The stable range of a sweep.

    Attributes:
        best: the highest accuracy, at ``best_rate``; the lowest of equally good rates.
        lowest, highest: the ends of the range around it; 0 if no rate is good enough.
    """

    best: float
    best_rate: float
    lowest: float
    highest: float

    @property
    def width(self) -> float:
        """The factor by which the rate may change; 0 if no rate is good enough."""
        return self.highest / self.lowest if self.lowest else 0.0


def stable_range(
    rates: Sequence[float], accuracies: Sequence[float], least: float
) -> Range:
    """Return the rates around the best one whose accuracy is at least ``least``.

    Args:
        rates: learning rates in increasing order.
        accuracies: shares, one per rate.
        least: a share. The range ends at the first rate below it, even if rates
            beyond are better.
    """
    values = np.asarray(accuracies, float)
    best = int(values.argmax())
    low = high = best
    if values[best] < least:
        return Range(float(values[best]), rates[best], 0.0, 0.0)
    while low > 0 and values[low - 1] >= least:
        low -= 1
    while high < len(values) - 1 and values[high + 1] >= least:
        high += 1
    return Range(float(values[best]), rates[best], rates[low], rates[high])


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run. A rate at which training diverges is a result, so no run diverges.

    Series, one entry per rate: ``rate``, ``loss`` (held out, nats) and ``accuracy``
    (held out, a share; 0 if the loss is non-finite). Summary: the values of
    :class:`~harness.tasks.stable_rates.ranges.Range`.
    """
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    trainer = module.Trainer(settings, make_plan(settings, seed), device)
    ends = [trainer.train(rate) for rate in settings.rates]
    losses = [loss for loss, _ in ends]
    accuracies = [share if math.isfinite(loss) else 0.0 for loss, share in ends]
    rates = [float(rate) for rate in settings.rates]
    series = {"rate": rates, "loss": losses, "accuracy": accuracies}
    found = stable_range(rates, accuracies, max(accuracies) - settings.margin)
    return Outcome("ok", "", series, found._asdict())
