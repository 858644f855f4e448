"""Steps of NovoGrad in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from harness.tasks.novograd_overhead import BETA1, BETA2, EPSILON, RATE
from harness.tasks.overhead.torch_model import Gradients, finished, parameters
from harness.timing import Makers, Step
from lockstep.pytorch import NovoGrad


def makers(seed: int, device: str, model: str) -> Makers:
    """Return the builder of each step: ``ours``, ``loop``."""
    torch.set_num_threads(1)
    gradients = Gradients(model, 1.0, device, torch.float32)

    def make(step: Callable[[list[Tensor]], Step]) -> Step:
        weights = parameters(model, device, torch.float32)
        gradients.fill(weights)
        return finished(step(weights), device)

    kinds = {"ours": our_step, "loop": loop_step}
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(weights: list[Tensor]) -> Step:
    """Return a step of our optimizer."""
    optimizer = NovoGrad(weights, lr=RATE)

    def step() -> None:
        optimizer.step()

    return step


def loop_step(weights: list[Tensor]) -> Step:
    """Return the naive loop, which updates one tensor after the other."""
    momenta = [torch.zeros_like(weight) for weight in weights]
    moments = [torch.zeros((), device=weight.device) for weight in weights]

    @torch.no_grad()
    def step() -> None:
        for weight, momentum, moment in zip(weights, momenta, moments, strict=True):
            square = weight.grad.square().sum()
            mixed = BETA2 * moment + (1 - BETA2) * square
            moment.copy_(torch.where(moment == 0, square, mixed))
            direction = weight.grad / torch.sqrt(moment + EPSILON)
            momentum.mul_(BETA1).add_(direction)
            weight.sub_(momentum, alpha=RATE)

    return step
