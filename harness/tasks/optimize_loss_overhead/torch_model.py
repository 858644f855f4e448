"""A whole step in PyTorch: scaled loss, backward, unscale, clip, fused Adam."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from harness.tasks.overhead.torch_model import Gradients, finished, parameters
from harness.timing import Makers, Step
from lockstep.pytorch import optimize_loss

RATE, SCALE, CLIP = 1e-4, 2.0**10, 1.0
WIDTHS, BATCH = (64, 128, 128, 10), 32

Loss = Callable[[], Tensor]


def makers(seed: int, device: str, model: str) -> Makers:
    """Return the builder of each step: ``ours``, ``hand``."""
    torch.set_num_threads(1)

    def make(step: Callable[[Loss, list[Tensor]], Step]) -> Step:
        return finished(step(*problem(model, device)), device)

    return {"ours": partial(make, our_step), "hand": partial(make, by_hand)}


def problem(model: str, device: str) -> tuple[Loss, list[Tensor]]:
    """Return the loss and parameters of a perceptron, or ones with fixed gradients."""
    if model == "MLP":
        return perceptron(device)
    weights = parameters(model, device, torch.float32)
    gradients = Gradients(model, 1.0, device, torch.float32).values
    return lambda: Given.apply(gradients, *weights), weights


def perceptron(device: str) -> tuple[Loss, list[Tensor]]:
    """Return the loss of a small perceptron on one batch, and its parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inputs, targets = torch.randn(BATCH, WIDTHS[0]), torch.randn(BATCH, WIDTHS[-1])
        layers: list[torch.nn.Module] = []
        for width, following in pairwise(WIDTHS):
            layers += [torch.nn.Linear(width, following), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers[:-1]).to(device)
    inputs, targets = inputs.to(device), targets.to(device)
    loss = torch.nn.functional.mse_loss
    return lambda: loss(model(inputs), targets), list(model.parameters())


class Given(torch.autograd.Function):
    """A loss of 0 with fixed gradients, at almost no cost."""

    @staticmethod
    def forward(ctx: Any, gradients: Sequence[Tensor], *weights: Tensor) -> Tensor:
        """Store the gradients; return 0."""
        ctx.gradients = gradients
        return weights[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> Any:
        """Return the gradients times the gradient of the loss."""
        return None, *torch._foreach_mul(ctx.gradients, scale)


def our_step(loss: Loss, weights: list[Tensor]) -> Step:
    """Return the step of ``optimize_loss``, with a fixed scale and clipping."""
    return optimize_loss(
        loss,
        torch.optim.Adam,
        {"fused": True},
        lambda global_step: RATE,
        var_list=weights,
        dtype="mixed",
        loss_scaling=SCALE,
        clip_gradients=CLIP,
    )


def by_hand(loss: Loss, weights: list[Tensor]) -> Step:
    """Return the loop in plain torch, which skips steps with non-finite gradients."""
    optimizer = torch.optim.Adam(weights, lr=RATE, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        (loss() * SCALE).backward()
        gradients = [weight.grad for weight in weights]
        torch._foreach_mul_(gradients, 1 / SCALE)
        norm = torch.nn.utils.clip_grad_norm_(weights, CLIP, foreach=True)
        if norm.isfinite():
            optimizer.step()

    return step
