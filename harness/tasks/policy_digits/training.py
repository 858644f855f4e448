"""One run: train under a schedule on a backend and measure at sparse checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.policy_digits.data import make_plan
from harness.tasks.policy_digits.settings import Settings

__all__ = ["prepare", "train"]


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite.

    Series: ``step``, ``rate`` (the backend's, for the next step) and ``loss`` (held
    out, nats). Summary: the last loss, the ``peak`` of the rate and its step.
    """
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    trainer = module.Trainer(settings, make_plan(settings, seed), device)
    rates: list[float] = []
    losses = [trainer.loss()]
    for start, stop in pairwise(settings.measured_at):
        rates += trainer.advance(start, stop)
        losses.append(trainer.loss())
        if not np.isfinite(losses[-1]):
            reason = f"a held-out loss was not finite after step {stop}"
            return Outcome("diverged", reason, _series(settings, rates, losses))
    rates.append(trainer.rate(settings.steps))
    peak = int(np.argmax(rates))
    summary = {"loss": losses[-1], "peak": rates[peak], "peak_step": peak}
    return Outcome("ok", "", _series(settings, rates, losses), summary)


def _series(
    settings: Settings, rates: list[float], losses: list[float]
) -> dict[str, list[float]]:
    steps = settings.measured_at[: len(losses)]
    shown = [rates[min(step, len(rates) - 1)] for step in steps]
    return {"step": [float(step) for step in steps], "rate": shown, "loss": losses}
