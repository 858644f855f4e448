"""The transformer in PyTorch, trained by Adam in wrappers that scale the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.tasks.byte_transformer.torch_model import Transformer
from harness.tasks.loss_scales import make_scale
from harness.tasks.mixed_precision_text.task import Plan, Settings
from lockstep import pytorch as lockstep


class Trainer:
    """One run, with the training loop that users of PyTorch write."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        torch.set_num_threads(1)
        self.overflow_steps = set(settings.overflow_steps)
        self.windows = torch.tensor(plan.windows, device=device).long()
        self.held_out = torch.tensor(plan.held_out, device=device).long()
        dtype = getattr(torch, settings.dtype)
        product = rounded_product if device == "cpu" else torch.matmul
        self.net = Transformer(settings.shape, plan.weights, device, dtype, product)
        weights = list(self.net.parameters())
        base = torch.optim.Adam(weights, lr=settings.rate, eps=settings.epsilon)
        self.optimizer = wrapped(base, settings)
        self.skipped = 0

    def advance(self, start: int, stop: int) -> None:
        """Take the steps ``start`` to ``stop`` - 1; count those that are skipped."""
        for step in range(start, stop):
            self.optimizer.zero_grad()
            loss = self.net.loss(self.windows[step])
            self.optimizer.scale_loss(loss).backward()
            if step in self.overflow_steps:
                self.net.weights[0].grad[0, 0] = torch.inf
            self.optimizer.step()
            self.skipped += not self.optimizer.last_step.applied

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.optimizer.loss_scale)

    def bits(self) -> float:
        return self.net.bits_per_byte(self.held_out)


def wrapped(base: torch.optim.Optimizer, settings: Settings) -> Any:
    """Return the optimizer with masters and loss scale, which skips non-finite steps.

    Without masters the weights are updated in their own dtype. Without a loss scale, it
    is 1.
    """
    scale = make_scale(settings, lockstep)
    if settings.masters:
        return lockstep.MixedPrecisionOptimizerWrapper(base, scale)
    return lockstep.MixedPrecisionLossScaleOptimizer(
        base, 1.0 if scale is None else scale
    )


def rounded_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply in float32 and round to the dtype of the factors, as tensor cores do.

    The gradients of the product are computed in the same way.
    """
    return (a.float() @ b.float()).to(a.dtype)
