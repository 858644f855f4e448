"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require_counts
from lockstep.errors import unknown_name

__all__ = ["BATCH", "DTYPES", "WORKLOADS", "Settings"]

WORKLOADS = {
    "multitask": "three heads on digits, one of them absent; the wrapper is the "
    "multitask wrapper",
    "embeddings": "two tables of 20,000 rows, of which a batch names 768; the wrapper "
    "clips these rows",
    "transformer": "the byte transformer, all weights in the precision; the wrapper "
    "adds a dynamic loss scale (fp32), float32 masters (bf16) or both (fp16)",
}
"""The workloads, each with its bare and its wrapped variant."""

BATCH = {"multitask": 128, "embeddings": 256, "transformer": 8}
"""Examples per step: images, pairs of rows, windows of 64 bytes."""

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        workload: one of ``WORKLOADS``.
        precision: one of ``DTYPES``, for weights and activations. A CPU is not timed in
            fp16.
        rounds: the number of timed steps of each variant.
    """

    workload: str
    precision: str
    rounds: int

    def __post_init__(self) -> None:
        if self.workload not in WORKLOADS:
            raise unknown_name("workload", self.workload, WORKLOADS)
        if self.precision not in DTYPES:
            raise unknown_name("precision", self.precision, DTYPES)
        require_counts(self, "rounds")

    @property
    def batch(self) -> int:
        """Examples per step."""
        return BATCH[self.workload]

    @property
    def dtype(self) -> str:
        """The dtype of weights and activations."""
        return DTYPES[self.precision]
