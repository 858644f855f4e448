"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require_counts
from lockstep.errors import unknown_name

__all__ = ["MODES", "Settings"]

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
