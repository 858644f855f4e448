"""Steps of ``optimize_loss`` to test, on a small model."""

from __future__ import annotations

import torch
from torch import nn

from lockstep import pytorch as ls

__all__ = ["INPUTS", "model_in", "rate", "step_of"]

generator = torch.Generator().manual_seed(7)
INPUTS = torch.randint(-4, 5, (32, 3), generator=generator).float()
"""Whole numbers: their sums and means over powers of two are exact."""


def rate(global_step):
    return ls.lr_policies.poly_decay(global_step, 0.1, 100)


def model_in(dtype=torch.float32) -> nn.Linear:
    """Return a layer whose gradient is the same for all of its outputs."""
    model = nn.Linear(3, 2, bias=False, dtype=dtype)
    values = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]])
    nn.init.zeros_(model.weight).data.copy_(values)
    return model


def step_of(model: nn.Module, /, **options):
    def loss(batch):
        return model(batch.to(model.weight.dtype)).float().sum(1).mean()

    given = {"optimizer": "Momentum", "optimizer_params": {"momentum": 0.5}}
    given |= {"learning_rate_decay_fn": rate, "model": model}
    return ls.optimize_loss(loss, **{**given, **options})
