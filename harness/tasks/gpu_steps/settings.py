"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require_counts
from lockstep.errors import unknown_name

__all__ = ["GRAPH", "STACKS", "WAYS", "Settings"]

STACKS = {
    "bare": "fused Adam",
    "multitask": "the multitask wrapper around it",
    "scaling": "a dynamic loss scale that clips by the global norm",
    "masters": "float16 weights with float32 masters, and such a loss scale",
    "all": "row clipping of one tensor, around the loss scale that clips, around the "
    "multitask wrapper",
}
"""The optimizers that take the steps, each with its description."""

GRAPH = "CUDA graph"

WAYS = {
    "host": "the wrappers as they come: they ask the GPU for what they decide by",
    "capturable": "capturable=True, so that the GPU decides",
    GRAPH: "the same step, captured once and replayed",
}
"""How the steps are taken, each with its description."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        stack: one of ``STACKS``.
        way: one of ``WAYS``.
        model: the name of the tensors' shapes, as in the benchmarks.
        zeros: the number of tensors whose gradients are all zero.
        counted: steps whose waits and launches are counted.
        steps: the steps of one timing.
        rounds: the number of timings.
    """

    stack: str
    way: str
    model: str
    zeros: int
    counted: int
    steps: int
    rounds: int

    def __post_init__(self) -> None:
        for kind, known in (("stack", STACKS), ("way", WAYS)):
            if (name := getattr(self, kind)) not in known:
                raise unknown_name(kind, name, known)
        require_counts(self, "counted", "steps", "rounds")
