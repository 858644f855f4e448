"""The net in PyTorch, and one whole training step in each precision."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.tasks.throughput.task import Settings
from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
)

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


class Trainer:
    """One net with its optimizer, trained on the same batch in every step."""

    def __init__(self, settings: Settings, seed: int, device: str) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.device = torch.device(device)
        method, _, short = settings.mode.rpartition(" ")
        dtype = DTYPES[short]
        # It holds for the process, in which other modes may follow.
        torch.set_float32_matmul_precision("high" if short == "tf32" else "highest")
        width = settings.width
        layers: list[nn.Module] = []
        for _ in range(settings.depth):
            layers += [nn.Linear(width, width), nn.ReLU()]
        weights = dtype if method == "masters" else torch.float32
        self.model = nn.Sequential(*layers).to(device, weights)
        self.features = torch.randn(settings.batch, width, device=device).to(weights)
        self.target = torch.randint(width, (settings.batch,), device=device)
        self.context: Any = contextlib.nullcontext
        if method in ("autocast", "GradScaler"):
            self.context = partial(torch.autocast, self.device.type, dtype=dtype)
        parameters = self.model.parameters()
        sgd = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, fused=True)
        self.optimizer = wrapped(sgd, method, short, self.device.type)
        self.scale = getattr(self.optimizer, "scale_loss", lambda loss: loss)

    def advance(self, steps: int) -> None:
        """Take ``steps`` steps: forward, backward and update."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.scale(self.forward()).backward()
            self.optimizer.step()

    def forward(self) -> Tensor:
        with self.context():
            logits = self.model(self.features)
        return functional.cross_entropy(logits.float(), self.target)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.no_grad()
    def loss(self) -> float:
        return self.forward().item()


def wrapped(sgd: torch.optim.Optimizer, method: str, short: str, kind: str) -> Any:
    """Return the optimizer of the mode; only float16 needs a loss scale."""
    if method == "GradScaler":
        return Scaled(sgd, kind)
    if method == "masters":
        scale = "dynamic" if short == "fp16" else None
        return MixedPrecisionOptimizerWrapper(sgd, scale)
    if method == "autocast" and short == "fp16":
        return MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
    return sgd


class Scaled:
    """An optimizer with torch's ``GradScaler``, called as our wrappers are."""

    def __init__(self, optimizer: torch.optim.Optimizer, kind: str) -> None:
        self.optimizer = optimizer
        self.zero_grad = optimizer.zero_grad
        self.scaler = torch.amp.GradScaler(kind)
        self.scale_loss = self.scaler.scale

    def step(self) -> None:
        """Take a step, or skip it, and update the scale."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
