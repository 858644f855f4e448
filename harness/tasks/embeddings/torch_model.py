"""Tables of rows in idiomatic PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks import own
from harness.tasks.embeddings.training import Recipe
from lockstep import pytorch as lockstep


class Trainer:
    """Eager training with sparse gradients; each run has new tables and optimizer."""

    def __init__(self, recipe: Recipe, loss, device: str) -> None:
        self.recipe, self.loss, self.device = recipe, loss, device

    def reset(self, weights) -> None:
        """Create the tables with their first values, and a new optimizer."""
        self.weights = {
            name: torch.nn.Parameter(torch.tensor(value, device=self.device))
            for name, value in weights.items()
        }
        parameters = list(self.weights.values())
        arguments = dict(self.recipe.arguments)
        if self.recipe.optimizer:
            make = getattr(lockstep, self.recipe.optimizer)
            self.optimizer = make(parameters, **arguments)
        else:
            self.optimizer = own.make(arguments, parameters, torch.optim.Optimizer)
        if self.recipe.limit == "clip":
            axes = {self.weights[name]: [1] for name in self.recipe.limited}
            self.optimizer = lockstep.VariableClippingOptimizer(
                self.optimizer, axes, self.recipe.max_norm
            )

    def advance(self, batches) -> None:
        """Train on batches [steps, batch, ids] int32; return when that is done."""
        ids = torch.tensor(batches, dtype=torch.int64, device=self.device)
        by_table = {
            name: ids[:, :, list(columns)].unbind()
            for name, columns in self.recipe.columns
        }
        for step in range(len(ids)):
            self.step({name: steps[step] for name, steps in by_table.items()})
        self.wait()

    def step(self, ids: dict[str, Tensor]) -> None:
        """Take one step on the ids of each table: [batch, ids] int64."""
        if self.recipe.limit == "normalise":
            self.normalise()
        self.optimizer.zero_grad()
        rows = {name: self.look_up(name, named) for name, named in ids.items()}
        self.loss(rows).backward()
        self.optimizer.step()

    @torch.no_grad()
    def normalise(self) -> None:
        """Scale every row of the limited tables to the norm ``max_norm``."""
        for name in self.recipe.limited:
            table = self.weights[name]
            norms = torch.linalg.vector_norm(table, dim=1, keepdim=True)
            table *= self.recipe.max_norm / norms

    def look_up(self, name: str, ids: Tensor) -> Tensor:
        """Return rows [..., width]; gradients flow through a limit in the lookup."""
        rows = functional.embedding(ids, self.weights[name], sparse=True)
        if self.recipe.limit != "lookup" or name not in self.recipe.limited:
            return rows
        norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        return rows * (self.recipe.max_norm / norms.clamp(min=self.recipe.max_norm))

    def tables(self) -> dict:
        """Return a copy of every table by name."""
        return {n: w.detach().cpu().numpy().copy() for n, w in self.weights.items()}

    @torch.inference_mode()
    def serve(self, table: str, ids) -> None:
        """Look up ids [lookups, ids] without training; return when they are ready."""
        for row in torch.from_numpy(ids).to(self.device).unbind():
            self.look_up(table, row)
        self.wait()

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        if self.device != "cpu":
            torch.cuda.synchronize()
