"""The variants of a step in PyTorch, each with its own parameters and state."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from harness.tasks.multitask_overhead.zeros import zero_flags
from harness.tasks.overhead.shapes import arrays
from harness.tasks.overhead.torch_model import finished
from harness.timing import Makers, Step
from lockstep.pytorch import MultitaskOptimizerWrapper


def makers(seed: int, device: str, model: str, zeros: str) -> Makers:
    """Return the builder of each step: ``ours``, ``bare``, ``loop``."""
    torch.set_num_threads(1)

    def make(step: Callable[[list[Tensor]], Step]) -> Step:
        return finished(step(parameters(model, zeros, device)), device)

    kinds = {"ours": wrapped_step, "bare": bare_step, "loop": loop_step}
    return {name: partial(make, step) for name, step in kinds.items()}


def parameters(model: str, zeros: str, device: str) -> list[Tensor]:
    """Return the parameters of a model with gradients, some of them all zero."""
    ready = []
    flags, gradients = zero_flags(model, zeros), arrays(model, seed=1)
    for value, gradient, is_zero in zip(
        arrays(model, 0), gradients, flags, strict=True
    ):
        parameter = torch.nn.Parameter(torch.tensor(value, device=device))
        parameter.grad = torch.tensor(gradient * (not is_zero), device=device)
        ready.append(parameter)
    return ready


def bare_step(weights: list[Tensor]) -> Step:
    """Return a step of fused Adam."""
    return torch.optim.Adam(weights, lr=1e-4, fused=True).step


def wrapped_step(weights: list[Tensor]) -> Step:
    """Return a step of our wrapper around fused Adam."""
    return MultitaskOptimizerWrapper(
        torch.optim.Adam(weights, lr=1e-4, fused=True)
    ).step


def loop_step(weights: list[Tensor]) -> Step:
    """Return the naive loop, with a count and a device sync for each tensor."""
    optimizer = torch.optim.Adam(weights, lr=1e-4, fused=True)

    def step() -> None:
        hidden = []
        for parameter in weights:
            if parameter.grad.count_nonzero().item() == 0:
                hidden.append((parameter, parameter.grad))
                parameter.grad = None
        optimizer.step()
        for parameter, gradient in hidden:
            parameter.grad = gradient

    return step
