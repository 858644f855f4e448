"""The heads of 18 genres in idiomatic PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks.absent_heads import torch_model
from harness.tasks.absent_heads.training import by_head
from harness.tasks.movie_genres.task import GENRES, Plan, Ratings


class Trainer(torch_model.Trainer):
    """Eager training, with new parameters and a new optimizer for each run."""

    def reset(self, plan: Plan) -> None:
        """Use the ratings and first weights of a plan; make a new optimizer."""
        self.start(plan, Ratings)
        self.trunk, *self.heads = self.weights.values()
        self.paths = torch.zeros(len(GENRES), device=self.device)

    def step(self, ratings: Ratings, factors: Tensor) -> None:
        """Take one step; the factor of an absent genre is zero."""
        before = torch.cat([head.detach() for head in self.heads], dim=1)
        self.optimizer.zero_grad()
        torch.dot(factors, self.losses(ratings)).backward()
        self.optimizer.step()
        after = torch.cat([head.detach() for head in self.heads], dim=1)
        self.paths += (after - before).norm(dim=0)

    def losses(self, ratings: Ratings) -> Tensor:
        """Return the mean squared error of each head over the ratings of its genre."""
        hidden = torch.tanh(ratings.features @ self.trunk)
        hidden = functional.pad(hidden, (0, 1), value=1.0)
        predicted = hidden @ torch.cat(self.heads, dim=1)
        errors = (predicted - ratings.stars[:, None]) ** 2
        counts = ratings.genres.sum(0).clamp(min=1)
        return (errors * ratings.genres).sum(0) / counts

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Return name -> measured value after the steps so far."""
        losses = self.losses(self.held_out).tolist()
        return by_head(GENRES, loss=losses, path=self.paths.tolist())
