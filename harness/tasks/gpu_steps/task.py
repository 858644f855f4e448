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


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a weight is not finite after it.

    Series: ``round`` and ``time``, microseconds per step. Summary: the median ``time``,
    and ``waits`` and ``launches``, the number per step. On a CPU there are neither, and
    no CUDA graph. ``seed`` only makes the run one of several.
    """
    settings = Settings(**config)
    on_gpu = device.startswith("cuda")
    if settings.way == GRAPH and not on_gpu:
        return Outcome("ok", "a CUDA graph needs a GPU")
    stepper = backends.model(__package__, backend).Stepper(settings, device)
    times = [seconds_of(stepper, settings.steps) for _ in range(settings.rounds + 1)]
    # The first round warms up.
    micro = [seconds / settings.steps * 1e6 for seconds in times[1:]]
    series = {"round": [float(k) for k in range(len(micro))], "time": micro}
    summary = {"time": float(np.median(micro))}
    if on_gpu:
        summary["waits"] = stepper.waits(settings.counted) / settings.counted
        summary["launches"] = stepper.launches(settings.counted) / settings.counted
    if not stepper.is_finite():
        return Outcome("diverged", "a weight was not finite at the end", series)
    return Outcome("ok", "", series, summary)


def seconds_of(stepper: Any, steps: int) -> float:
    """Return how long steps take, until the device has finished the last one."""
    stepper.wait()
    start = perf_counter()
    for _ in range(steps):
        stepper.take()
    stepper.wait()
    return perf_counter() - start
