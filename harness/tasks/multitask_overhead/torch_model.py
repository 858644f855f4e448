"""The variants of a step in PyTorch, each with parameters and state of its own."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor

from harness.tasks.multitask_overhead.models import arrays, zero_flags
from harness.timing import Steps
from lockstep.pytorch import MultitaskOptimizerWrapper


def variants(seed: int, model: str, zeros: str, device: str) -> Steps:
    """Return the steps to time, made in random order: ``ours``, ``bare``, ``loop``."""
    torch.set_num_threads(1)
    makers = {"ours": wrapped_step, "bare": bare_step, "loop": loop_step}
    return {
        name: finished(makers[name](parameters(model, zeros, device)), device)
        for name in random.Random(seed).sample(sorted(makers), len(makers))
    }


def parameters(model: str, zeros: str, device: str) -> list[Tensor]:
    made = []
    flags, gradients = zero_flags(model, zeros), arrays(model, seed=1)
    for value, gradient, is_zero in zip(
        arrays(model, 0), gradients, flags, strict=True
    ):
        parameter = torch.nn.Parameter(torch.tensor(value, device=device))
        parameter.grad = torch.tensor(gradient * (not is_zero), device=device)
        made.append(parameter)
    return made


def bare_step(made: list[Tensor]) -> Callable[[], None]:
    return torch.optim.Adam(made, lr=1e-4, fused=True).step


def wrapped_step(made: list[Tensor]) -> Callable[[], None]:
    return MultitaskOptimizerWrapper(torch.optim.Adam(made, lr=1e-4, fused=True)).step


def loop_step(made: list[Tensor]) -> Callable[[], None]:
    """The loop that one writes first: a count and a host sync a tensor."""
    optimizer = torch.optim.Adam(made, lr=1e-4, fused=True)

    def step() -> None:
        hidden = []
        for parameter in made:
            if parameter.grad.count_nonzero().item() == 0:
                hidden.append((parameter, parameter.grad))
                parameter.grad = None
        optimizer.step()
        for parameter, gradient in hidden:
            parameter.grad = gradient

    return step


def finished(step: Callable[[], None], device: str) -> Callable[[], None]:
    """Return ``step``, waiting for the device where it works on its own."""
    if not device.startswith("cuda"):
        return step

    def and_wait() -> None:
        step()
        torch.cuda.synchronize(device)

    return and_wait
