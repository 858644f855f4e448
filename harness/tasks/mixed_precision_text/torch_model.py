"""The transformer in PyTorch, trained by Adam in wrappers that scale the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.tasks.byte_transformer.data import Plan
from harness.tasks.byte_transformer.torch_model import Transformer
from harness.tasks.loss_scales import make_scale
from harness.tasks.mixed_precision_text.task import Settings
from lockstep import pytorch as lockstep


class Trainer:
    """One run, with the training loop that users of PyTorch write."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        torch.set_num_threads(1)
        self.overflow_steps = set(settings.overflow_steps)
        self.batches = torch.tensor(plan.batches, device=device).long()
        self.held_out = torch.tensor(plan.held_out, device=device).long()
        dtype = getattr(torch, settings.dtype)
        product = rounded_product if device == "cpu" else torch.matmul
        self.net = Transformer(settings.shape, plan.weights, device, dtype, product)
        weights = list(self.net.parameters())
        base = torch.optim.Adam(weights, lr=settings.rate, eps=settings.epsilon)
        scale = make_scale(settings.method, lockstep)
        if settings.method.get("masters", True):
            self.optimizer = lockstep.MixedPrecisionOptimizerWrapper(base, scale)
        else:  # The weights are updated in their own dtype.
            scaled = lockstep.MixedPrecisionLossScaleOptimizer
            self.optimizer = scaled(base, 1.0 if scale is None else scale)
        self.skipped = 0

    def advance(self, start: int, stop: int) -> None:
        """Take the steps ``start`` to ``stop`` - 1; count those that are skipped."""
        for step in range(start, stop):
            self.optimizer.zero_grad()
            loss = self.net.loss(self.batches[step])
            self.optimizer.scale_loss(loss).backward()
            if step in self.overflow_steps:
                self.net.weights[0].grad[0, 0] = torch.inf
            self.optimizer.step()
            self.skipped += not self.optimizer.last_step.applied

    def measure(self) -> dict[str, float]:
        """Return held-out bits per byte, the next step's scale and skipped steps."""
        return {
            "bits": self.net.bits_per_byte(self.held_out),
            "scale": float(self.optimizer.loss_scale),
            "skipped": float(self.skipped),
        }


def rounded_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply in float32 and round to the dtype of the factors, as tensor cores do.

    The gradients of the product are computed in the same way.
    """
    return (a.float() @ b.float()).to(a.dtype)
