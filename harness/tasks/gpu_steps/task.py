"""Steps over small tensors on a GPU: their time, and how often they wait for it.

Only records of GPUs are judged, because nothing waits for a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any, Literal

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.schema import Count, settings

Stack = Literal[
    "bare",  # fused Adam
    "scaling",  # a dynamic loss scale around it that clips by the global norm
]
Way = Literal[
    "host",  # the wrapper as it comes: it asks the GPU for what it decides by
    "capturable",  # capturable=True, so that the GPU decides
    "CUDA graph",  # the same step, captured once and replayed
]


@settings
class Settings:
    stack: Stack
    way: Way
    model: str  # the name of the tensors' shapes, as in the benchmarks
    zeros: int  # tensors whose gradients are all zero, which changes no time
    counted: Count  # steps whose waits are counted
    steps: Count  # of one timing
    rounds: Count  # timings


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a weight is not finite after it.

    Series: ``time``, microseconds per step. Summary: the median ``time``,
    and ``waits``, the number per step. On a CPU there are none, and no CUDA graph.
    ``seed`` only makes the run one of several.
    """
    of = Settings(**config)
    on_gpu = device.startswith("cuda")
    if of.way == "CUDA graph" and not on_gpu:
        return Outcome("ok", "a CUDA graph needs a GPU")
    stepper = backends.model("gpu_steps", backend).Stepper(of, device)
    seconds_of(stepper, of.steps)  # warms up
    times = [seconds_of(stepper, of.steps) / of.steps for _ in range(of.rounds)]
    micro = [1e6 * seconds for seconds in times]
    series = {"time": micro}
    summary = {"time": float(np.median(micro))}
    if on_gpu:
        summary["waits"] = stepper.waits(of.counted) / of.counted
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
