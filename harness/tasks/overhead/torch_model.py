"""Builders of steps in PyTorch, which wait for the device before they return."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.tasks.overhead.shapes import arrays
from harness.timing import Prepared, Step


def parameters(model: str, device: str, dtype: torch.dtype) -> list[Tensor]:
    """Return the parameters of a model, without gradients."""
    return [
        torch.nn.Parameter(torch.tensor(value, dtype=dtype, device=device))
        for value in arrays(model, seed=0)
    ]


def finished(step: Step, device: str) -> Step:
    """Return ``step``, followed by a wait for an asynchronous device."""
    if not device.startswith("cuda"):
        return step

    def and_wait() -> None:
        step()
        torch.cuda.synchronize(device)

    return and_wait


def prepared(prepare: Step, step: Step, device: str, count: int = 1) -> Prepared:
    """Return a step with a preparation that is not timed."""
    return Prepared(finished(prepare, device), finished(step, device), count)


class Gradients:
    """The gradients of scaled losses, which are restored before every step.

    Fused optimizers write unscaled and clipped gradients back into ``grad``, so a
    second step would have nothing to clip.
    """

    def __init__(
        self, model: str, scale: float, device: str, dtype: torch.dtype
    ) -> None:
        tensors = [torch.tensor(value * scale) for value in arrays(model, seed=1)]
        self.values = [value.to(device, dtype) for value in tensors]

    def fill(self, parameters: list[Tensor]) -> None:
        """Copy the gradients into the parameters' gradients, in place."""
        for parameter, value in zip(parameters, self.values, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(value)
            parameter.grad.copy_(value)
