"""One run: time whole training steps in one precision."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.throughput.settings import Settings

__all__ = ["prepare", "train"]


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if the loss after it is not finite.

    Series: ``round`` and ``rate``, examples per second. Summary: the median ``rate``,
    and the ``loss`` before and after, to detect steps without effect.
    """
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    trainer = module.Trainer(settings, seed, device)
    before = trainer.loss()
    trainer.advance(settings.warm_up)
    rates = []
    for _ in range(settings.rounds):
        trainer.wait()
        start = perf_counter()
        trainer.advance(settings.steps)
        trainer.wait()
        seconds = perf_counter() - start
        rates.append(settings.steps * settings.batch / seconds)
    series = {"round": [float(k) for k in range(len(rates))], "rate": rates}
    after = trainer.loss()
    if not np.isfinite(after):
        return Outcome("diverged", "the loss was not finite at the end", series)
    own = {"rate": float(np.median(rates)), "before": before, "loss": after}
    return Outcome("ok", "", series, own)
