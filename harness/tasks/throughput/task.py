"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.settings import require_counts
from lockstep.errors import unknown_name

MODES = {
    "fp32": "float32 throughout",
    "tf32": "float32 whose matrix products are rounded to TF32 on the way in",
    "GradScaler fp16": "torch.autocast to float16, torch's GradScaler",
    "autocast fp16": "torch.autocast to float16, dynamic loss scale",
    "autocast bf16": "torch.autocast to bfloat16, no loss scale",
    "masters fp16": "float16 weights, float32 masters, dynamic loss scale",
    "masters bf16": "bfloat16 weights, float32 masters, no loss scale",
}
"""The precisions of training, each with its description."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        mode: one of ``MODES``.
        depth: the number of square layers.
        width: the units of each layer.
        batch: examples per step.
        warm_up: steps before the timings.
        steps: the steps of one timing.
        rounds: the number of timings.
    """

    mode: str
    depth: int
    width: int
    batch: int
    warm_up: int
    steps: int
    rounds: int

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise unknown_name("mode", self.mode, MODES)
        require_counts(self, "depth", "width", "batch", "warm_up", "steps", "rounds")


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
