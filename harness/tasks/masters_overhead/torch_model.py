"""Steps of Adam on masters in PyTorch: the gradients are float16 and scaled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from harness.tasks.overhead.torch_model import Gradients, parameters, prepared
from harness.timing import Step, Steps, made
from lockstep.pytorch import MixedPrecisionOptimizerWrapper

SCALE, CLIP = 2.0**10, 1.0


def variants(seed: int, model: str, device: str) -> Steps:
    """Return the steps to time, made in random order: ``ours``, ``loop``."""
    torch.set_num_threads(1)
    gradients = Gradients(model, SCALE, device, torch.float16)

    def make(step: Callable[[list[Tensor]], tuple[Step, Step]]) -> Step:
        weights = parameters(model, device, torch.float16)
        scale, timed = step(weights)

        def prepare() -> None:
            gradients.fill(weights)
            scale()

        return prepared(prepare, timed, device)

    makers = {"ours": our_step, "loop": loop_step}
    return made({name: partial(make, step) for name, step in makers.items()}, seed)


def our_step(weights: list[Tensor]) -> tuple[Step, Step]:
    """Return what scales a loss before the step, and the step."""
    base = torch.optim.Adam(weights, lr=1e-4, fused=True)
    optimizer = MixedPrecisionOptimizerWrapper(base, SCALE, clip_norm=CLIP)
    loss = weights[0].new_ones((), requires_grad=True)
    return lambda: optimizer.scale_loss(loss), optimizer.step


def loop_step(weights: list[Tensor]) -> tuple[Step, Step]:
    """The loop that one writes first: a copy of each tensor there and back.

    Its step divides by the scale itself; nothing comes before.
    """
    masters = [torch.nn.Parameter(weight.detach().float()) for weight in weights]
    optimizer = torch.optim.Adam(masters, lr=1e-4, fused=True)

    @torch.no_grad()
    def step() -> None:
        for weight, master in zip(weights, masters, strict=True):
            master.grad = weight.grad.float().mul_(1 / SCALE)
        torch.nn.utils.clip_grad_norm_(masters, CLIP)
        optimizer.step()
        for weight, master in zip(weights, masters, strict=True):
            weight.copy_(master)

    return lambda: None, step
