"""One run: train the transformer and measure its loss and the optimizer's state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.warm_up.data import make_plan
from harness.tasks.warm_up.settings import Settings

__all__ = ["prepare", "train"]


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a loss is not finite.

    Summary: ``bits``, the final held-out loss in bits per byte, and the bytes of the
    optimizer's ``state`` and of the ``weights``.
    """
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    trainer = module.Trainer(settings, make_plan(settings, seed), device)
    taken = trainer.train()
    if taken < settings.steps:
        return Outcome("diverged", f"the loss was not finite after {taken} steps")
    bits = trainer.bits_per_byte()
    if not math.isfinite(bits):
        return Outcome("diverged", "the held-out loss was not finite")
    state, weights = trainer.state_bytes(), trainer.weight_bytes()
    return Outcome("ok", "", {}, {"bits": bits, "state": state, "weights": weights})
