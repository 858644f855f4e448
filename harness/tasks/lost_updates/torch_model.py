"""The updates in PyTorch: SGD with a rate of 1, with and without masters."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.tasks.lost_updates.data import Plan
from harness.tasks.lost_updates.settings import Settings
from lockstep.interface import Array
from lockstep.pytorch import MixedPrecisionOptimizerWrapper


class Trainer:
    """One vector of weights with its optimizer."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        torch.set_num_threads(1)
        self.weight = torch.nn.Parameter(torch.tensor(plan.weights, device=device))
        self.weight.grad = torch.tensor(plan.updates, device=device)
        base = torch.optim.SGD([self.weight], lr=1.0)
        self.optimizer: torch.optim.Optimizer = base
        self.master: Tensor = self.weight
        if settings.method == "masters":
            wrapper = MixedPrecisionOptimizerWrapper(base)
            self.optimizer, self.master = wrapper, wrapper.master(self.weight)

    def step(self) -> None:
        """Apply the updates once more."""
        self.optimizer.step()

    def trained(self) -> Array:
        """Return a copy of the updated tensor: weights or masters."""
        return self.master.detach().cpu().numpy().copy()

    def weights(self) -> Array:
        """Return the float16 weights."""
        return self.weight.detach().cpu().numpy().copy()
