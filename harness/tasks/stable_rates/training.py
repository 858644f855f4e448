"""One run: train a new net at every rate, and measure each at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.stable_rates.data import make_plan
from harness.tasks.stable_rates.ranges import stable_range
from harness.tasks.stable_rates.settings import Settings

__all__ = ["prepare", "train"]


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
