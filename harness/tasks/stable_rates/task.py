"""A deep net, trained at every rate of a sweep to find the range of stable rates.

One run is one net, batch and method at all rates, so each seed has its own range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, Required

import numpy as np
from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.digits import CLASSES, INPUTS, Images, split
from harness.tasks.schema import Count, Label, Number, Positive, require, settings
from lockstep.interface import Array
from lockstep.larc import larc_policy

IMAGES = 1437
"""The number of training images of ``harness.tasks.digits``; the rest is held out."""

Share = Annotated[Number, Field(ge=0, lt=1)]


@with_config(ConfigDict(extra="forbid", strict=True))
class Method(TypedDict, total=False):
    """The label of a method, and its arguments of ``post_process_gradients``.

    Without arguments it is not called.
    """

    label: Required[Label]
    clip_gradients: Positive
    larc_params: dict[str, Any]


@settings
class Settings:
    """The settings of one run.

    Attributes:
        batch: images per step.
        epochs: the passes over all images; so larger batches mean fewer steps.
        depth: the number of hidden tanh layers.
        width: the units of each layer.
        momentum: the momentum of SGD.
        rates: learning rates in increasing order; a new net is trained at each.
        margin: no longer used; part of the ids of runs.
    """

    method: Method
    batch: Count
    epochs: Count
    depth: Count
    width: Count
    momentum: Share
    rates: Annotated[list[Positive], Field(min_length=2)]
    margin: Share

    def __post_init__(self) -> None:
        expected = "a batch or more of images in all epochs"
        require(self.steps > 0, "epochs", expected, f"{self.epochs} of {IMAGES}")
        increasing = all(low < high for low, high in pairwise(self.rates))
        require(increasing, "rates", "numbers in increasing order", self.rates)
        if "larc_params" in self.method:
            larc_policy(self.method["larc_params"])

    @property
    def label(self) -> str:
        return self.method["label"]

    @property
    def steps(self) -> int:
        """Optimizer steps at each rate: the full batches of all epochs."""
        return self.epochs * IMAGES // self.batch


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
    streams = [np.random.default_rng((seed, k)) for k in range(3)]
    training, held_out = split(streams[0])
    images = len(training.digit)
    epochs = [streams[1].permutation(images) for _ in range(settings.epochs)]
    order = np.concatenate(epochs).astype(np.int32)[: settings.steps * settings.batch]
    batches = order.reshape(settings.steps, settings.batch)
    sizes = [INPUTS, *[settings.width] * settings.depth, CLASSES]
    weights = [streams[2].standard_normal(shape) for shape in pairwise(sizes)]
    scaled = [(w / np.sqrt(len(w))).astype(np.float32) for w in weights]
    return Plan(training, held_out, batches, scaled)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run. A rate at which training diverges is a result, so no run diverges.

    Series, one entry per rate: ``rate``, ``loss`` (held out, nats) and ``accuracy``
    (held out, a share; 0 if the loss is non-finite).
    """
    settings = Settings(**config)
    module = backends.model("stable_rates", backend)
    trainer = module.Trainer(settings, make_plan(settings, seed), device)
    ends = [trainer.train(rate) for rate in settings.rates]
    losses = [loss for loss, _ in ends]
    accuracies = [share if math.isfinite(loss) else 0.0 for loss, share in ends]
    rates = [float(rate) for rate in settings.rates]
    series = {"rate": rates, "loss": losses, "accuracy": accuracies}
    return Outcome("ok", "", series)
