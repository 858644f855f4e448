"""The three workloads in PyTorch, bare and wrapped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks.byte_transformer.torch_model import Transformer
from harness.tasks.training_throughput.task import (
    MOMENTUM,
    PRESENT,
    RATE,
    SHAPE,
    Plan,
    Settings,
    wrap,
)
from lockstep import pytorch as lockstep


class Trainer:
    """A net with its optimizer, trained on the same batch in every step."""

    def __init__(
        self, settings: Settings, plan: Plan, device: str, wrapped: bool
    ) -> None:
        torch.set_num_threads(1)
        self.device, self.workload = device, settings.workload
        dtype = getattr(torch, settings.dtype)
        self.batch = {
            name: on_device(torch.tensor(value), device, dtype)
            for name, value in plan.batch.items()
        }
        if self.workload == "transformer":
            self.net = Transformer(SHAPE, plan.weights, device, dtype)
            self.weights = dict(zip(plan.weights, self.net.weights, strict=True))
        else:
            self.weights = {
                name: torch.nn.Parameter(torch.tensor(value).to(device, dtype))
                for name, value in plan.weights.items()
            }
        self.optimizer = self.make_optimizer(settings, wrapped)
        self.scale = getattr(self.optimizer, "scale_loss", lambda loss: loss)

    def make_optimizer(self, settings: Settings, wrapped: bool) -> Any:
        """Return the bare optimizer, or our wrapper around it."""
        weights = list(self.weights.values())
        if self.workload == "embeddings":
            base = torch.optim.SGD(weights, lr=RATE)
        else:
            # On a CPU, PyTorch 2.13's fused SGD does not update most half-precision
            # weights.
            fused = settings.precision == "fp32"
            base = torch.optim.SGD(weights, lr=RATE, momentum=MOMENTUM, fused=fused)
        axes = {weight: [1] for weight in weights}
        return wrap(lockstep, base, settings, axes) if wrapped else base

    def step(self) -> None:
        """Take a whole step; return when the device has finished it."""
        self.optimizer.zero_grad()
        self.scale(self.losses()).backward()
        self.optimizer.step()
        if torch.device(self.device).type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.no_grad()
    def loss(self) -> float:
        return self.losses().item()

    def losses(self) -> Tensor:
        """Return the loss, in float32."""
        if self.workload == "transformer":
            return self.net.loss(self.batch["windows"])
        return self.heads() if self.workload == "multitask" else self.distance()

    def heads(self) -> Tensor:
        """Return the losses of the three heads, with 0 for an absent head."""
        hidden = torch.tanh(self.batch["features"] @ self.weights["trunk"])
        digit, parity, ink = (
            (hidden @ self.weights[name]).float() for name in ("digit", "parity", "ink")
        )
        losses = (
            functional.cross_entropy(digit, self.batch["digit"]),
            functional.binary_cross_entropy_with_logits(
                parity[:, 0], self.batch["parity"].float()
            ),
            functional.mse_loss(ink[:, 0], self.batch["ink"].float()),
        )
        return sum(share * loss for share, loss in zip(PRESENT, losses, strict=True))

    def distance(self) -> Tensor:
        """Return the logistic loss of pairs against pairs with another item."""
        user, item = (self.weights[name] for name in ("user", "item"))
        rows = functional.embedding(self.batch["users"], user, sparse=True)
        near, far = (
            functional.embedding(self.batch[name], item, sparse=True)
            for name in ("items", "others")
        )
        return functional.softplus(((far - near) * rows).float().sum(1)).mean()


def on_device(value: Tensor, device: str, dtype: torch.dtype) -> Tensor:
    """Return a part of the batch on the device: floats in a dtype, ids in int64."""
    return value.to(device, dtype if value.is_floating_point() else torch.int64)
