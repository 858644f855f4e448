"""Tables of rows in idiomatic PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks import own
from harness.tasks.embeddings.training import EmbeddingSettings, Plan
from lockstep import pytorch as lockstep

Rows = dict[str, Tensor]


class Trainer:
    """Eager training with sparse gradients; each run has new tables and optimizer."""

    def __init__(self, of: EmbeddingSettings, plan: Plan, loss, device: str) -> None:
        self.of, self.loss, self.device = of, loss, device
        self.columns, self.limited = plan.columns, plan.limited

    def reset(self, weights) -> None:
        """Create the tables with their first values, and a new optimizer."""
        self.weights = {
            name: torch.nn.Parameter(torch.tensor(value, device=self.device))
            for name, value in weights.items()
        }
        parameters = list(self.weights.values())
        kind = torch.optim.Optimizer
        self.optimizer = own.optimizer_of(self.of.optimizer, lockstep, parameters, kind)
        if self.of.limit == "clip":
            axes = {self.weights[name]: [1] for name in self.limited}
            self.optimizer = lockstep.VariableClippingOptimizer(
                self.optimizer, axes, self.of.max_norm
            )

    def advance(self, batches) -> None:
        """Train on batches [steps, batch, ids] int32; return when that is done."""
        ids = torch.tensor(batches, dtype=torch.int64, device=self.device)
        by_table = {
            name: ids[:, :, list(columns)].unbind()
            for name, columns in self.columns.items()
        }
        for step in range(len(ids)):
            self.step({name: steps[step] for name, steps in by_table.items()})
        self.wait()

    def step(self, ids: dict[str, Tensor]) -> None:
        """Take one step on the ids of each table: [batch, ids] int64."""
        if self.of.limit == "normalise":
            self.normalise()
        self.optimizer.zero_grad()
        rows = {name: self.look_up(name, named) for name, named in ids.items()}
        self.loss(rows).backward()
        self.optimizer.step()

    @torch.no_grad()
    def normalise(self) -> None:
        """Scale every row of the limited tables to the norm ``max_norm``."""
        for name in self.limited:
            table = self.weights[name]
            norms = torch.linalg.vector_norm(table, dim=1, keepdim=True)
            table *= self.of.max_norm / norms

    def look_up(self, name: str, ids: Tensor) -> Tensor:
        """Return rows [..., width]; gradients flow through a limit in the lookup."""
        rows = functional.embedding(ids, self.weights[name], sparse=True)
        if self.of.limit != "lookup" or name not in self.limited:
            return rows
        norms = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        return rows * (self.of.max_norm / norms.clamp(min=self.of.max_norm))

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
        if self.device != "cpu":
            torch.cuda.synchronize()


# -- losses of the tasks ---------------------------------------------------------------


def recommender(rows: Rows) -> Tensor:
    """Return sum log(1 + exp(-user . chosen)) + log(1 + exp(user . other))."""
    scores = (rows["user"] * rows["item"]).sum(dim=2)
    chosen, other = scores.unbind(dim=1)
    return (functional.softplus(-chosen) + functional.softplus(other)).sum()


def link_prediction(rows: Rows, margin: float, penalty: float) -> Tensor:
    """Return sum max(0, margin + d(true) - d(false)), d = |head + relation - tail|.

    Plus ``penalty`` times the sum of the squares of the batch's entities. An entity
    counts as often as the batch names it.
    """
    head, tail, false_head, false_tail = rows["entity"].unbind(dim=1)
    relation = rows["relation"][:, 0]
    true = torch.linalg.vector_norm(head + relation - tail, dim=1)
    false = torch.linalg.vector_norm(false_head + relation - false_tail, dim=1)
    ranking = torch.relu(margin + true - false).sum()
    if not penalty:
        return ranking
    return ranking + penalty * rows["entity"].square().sum()
