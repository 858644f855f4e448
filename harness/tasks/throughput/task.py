"""Timings of whole training steps of a plain net in several precisions.

Only records of GPUs are judged, because float16 on a CPU is not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any, Literal

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.schema import Count, settings

Mode = Literal[
    "fp32",  # float32 throughout
    "tf32",  # float32 whose matrix products are rounded to TF32 on the way in
    "GradScaler fp16",  # torch.autocast to float16, torch's GradScaler
    "autocast fp16",  # torch.autocast to float16, dynamic loss scale
    "autocast bf16",  # torch.autocast to bfloat16, no loss scale
    "masters fp16",  # float16 weights, float32 masters, dynamic loss scale
    "masters bf16",  # bfloat16 weights, float32 masters, no loss scale
]


@settings
class Settings:
    mode: Mode
    depth: Count  # square layers
    width: Count
    batch: Count
    warm_up: Count  # steps before the timings
    steps: Count  # of one timing
    rounds: Count  # timings


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if the loss after it is not finite.

    Series: ``rate``, examples per second. Summary: the median ``rate``,
    and the ``loss`` at the end.
    """
    of = Settings(**config)
    trainer = backends.model("throughput", backend).Trainer(of, seed, device)
    trainer.advance(of.warm_up)
    rates = []
    for _ in range(of.rounds):
        trainer.wait()
        start = perf_counter()
        trainer.advance(of.steps)
        trainer.wait()
        rates.append(of.steps * of.batch / (perf_counter() - start))
    series = {"rate": rates}
    after = trainer.loss()
    if not np.isfinite(after):
        return Outcome("diverged", "the loss was not finite at the end", series)
    summary = {"rate": float(np.median(rates)), "loss": after}
    return Outcome("ok", "", series, summary)
