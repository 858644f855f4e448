"""The steps in PyTorch, and what is counted in them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from harness.tasks.gpu_steps.task import Settings
from harness.tasks.overhead.torch_model import fill, gradients, parameters
from harness.timing import Step
from lockstep.pytorch import MixedPrecisionLossScaleOptimizer

RATE, NORM = 1e-4, 1.0

WAITS = "called a synchronizing CUDA operation"


class Stepper:
    """An optimizer and the gradients that it steps on."""

    def __init__(self, settings: Settings, device: str) -> None:
        torch.set_num_threads(1)
        self.device = device
        self.weights = parameters(settings.model, device, torch.float32)
        self.gradients = gradients(settings.model, 1.0, device, torch.float32)
        for value in self.gradients[: settings.zeros]:
            value.zero_()
        self.optimizer = make(settings.stack, self.weights, settings.way != "host")
        self.loss = torch.ones((), device=device, requires_grad=True)
        self.scale_loss = getattr(self.optimizer, "scale_loss", None)
        graph = settings.way == "CUDA graph"
        self.take: Step = captured(self.step) if graph else self.step

    def step(self) -> None:
        """Write the gradients, as ``backward`` would, and step."""
        if self.scale_loss is not None:
            self.optimizer.zero_grad()
            self.scale_loss(self.loss).backward()
        fill(self.weights, self.gradients)
        self.optimizer.step()

    def wait(self) -> None:
        if torch.device(self.device).type == "cuda":
            torch.cuda.synchronize(self.device)

    def waits(self, steps: int) -> int:
        """Take steps; return how often the host waited for the GPU."""
        with warnings.catch_warnings(record=True) as caught, counting_waits():
            for _ in range(steps):
                self.take()
        return sum(WAITS in str(warning.message) for warning in caught)

    def is_finite(self) -> bool:
        return all(bool(weight.isfinite().all()) for weight in self.weights)


def make(stack: str, weights: list[Tensor], on_device: bool) -> Any:
    """Return an optimizer; ``on_device``: it never waits for the GPU."""
    adam = torch.optim.Adam(weights, lr=RATE, fused=True, capturable=on_device)
    if stack == "bare":
        return adam
    return MixedPrecisionLossScaleOptimizer(
        adam, "dynamic", clip_norm=NORM, capturable=on_device
    )


def captured(step: Step) -> Step:
    """Return a function that replays a CUDA graph of the step."""
    # As PyTorch's notes on CUDA graphs ask: the first steps on another stream.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@contextmanager
def counting_waits() -> Iterator[None]:
    """Let PyTorch warn of each operation that waits for the GPU."""
    warnings.simplefilter("always")
    torch.cuda.set_sync_debug_mode("warn")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
