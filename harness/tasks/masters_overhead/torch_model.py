"""Steps of Adam on masters in PyTorch, with scaled float16 gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from harness.tasks.masters_overhead import CLIP, SCALE
from harness.tasks.overhead.torch_model import Gradients, parameters, prepared
from harness.timing import Makers, Step
from lockstep.pytorch import MixedPrecisionOptimizerWrapper


def makers(seed: int, device: str, model: str) -> Makers:
    """Return the builder of each step: ``ours``, ``loop``."""
    torch.set_num_threads(1)
    gradients = Gradients(model, SCALE, device, torch.float16)

    def make(step: Callable[[list[Tensor]], tuple[Step, Step]]) -> Step:
        weights = parameters(model, device, torch.float16)
        scale, timed = step(weights)

        def prepare() -> None:
            gradients.fill(weights)
            scale()

        return prepared(prepare, timed, device)

    kinds = {"ours": our_step, "loop": loop_step}
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(weights: list[Tensor]) -> tuple[Step, Step]:
    """Return a function that scales a loss before the step, and the step."""
    base = torch.optim.Adam(weights, lr=1e-4, fused=True)
    optimizer = MixedPrecisionOptimizerWrapper(base, SCALE, clip_norm=CLIP)
    loss = weights[0].new_ones((), requires_grad=True)
    return lambda: optimizer.scale_loss(loss), optimizer.step


def loop_step(weights: list[Tensor]) -> tuple[Step, Step]:
    """Return the naive loop, which copies each tensor to its master and back.

    Its step itself divides by the scale, so the function before the step is empty.
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
