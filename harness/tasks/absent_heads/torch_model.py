"""What both tasks with absent heads do in PyTorch."""

from __future__ import annotations

import torch

from harness.errors import HarnessError
from harness.tasks import own
from harness.tasks.absent_heads.training import Recipe
from lockstep import pytorch as lockstep


class Trainer:
    """Eager training, with new parameters and a new optimizer for each run."""

    def __init__(self, recipe: Recipe, device: str) -> None:
        if recipe.wrapper == "strict":
            raise HarnessError(
                "wrapper: expected 'none' or 'default' on PyTorch, got 'strict'; "
                "run it on tf, which has strict."
            )
        self.recipe, self.device = recipe, device

    def start(self, plan, kind) -> None:
        """Make the weights by name and the optimizer; ``kind``: of a set of data."""
        self.training, self.held_out = (
            kind(*(torch.tensor(part, device=self.device) for part in data))
            for data in (plan.training, plan.held_out)
        )
        self.weights = {
            name: torch.nn.Parameter(torch.tensor(value, device=self.device))
            for name, value in plan.weights.items()
        }
        self.optimizer = own.optimizer_of(
            self.recipe.optimizer,
            lockstep,
            list(self.weights.values()),
            torch.optim.Optimizer,
        )
        if self.recipe.wrapper != "none":
            self.optimizer = lockstep.MultitaskOptimizerWrapper(self.optimizer)

    def advance(self, batches, weights) -> None:
        """Take one step per batch: rows [steps, batch], weights [steps, heads]."""
        rows = torch.tensor(batches, dtype=torch.int64, device=self.device)
        factors = torch.tensor(weights, device=self.device)
        for batch, row in zip(rows, factors, strict=True):
            kind = type(self.training)
            self.step(kind(*(part[batch] for part in self.training)), row)
