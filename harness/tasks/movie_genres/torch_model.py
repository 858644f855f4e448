"""The heads of 18 genres in idiomatic PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.errors import HarnessError
from harness.tasks.movie_genres.task import GENRES, Plan, Ratings, Recipe
from lockstep import pytorch as lockstep


class GenresTrainer:
    """Eager training, with new parameters and a new optimizer for each run."""

    def __init__(self, recipe: Recipe, device: str) -> None:
        self.recipe = recipe
        self.device = device

    def reset(self, plan: Plan) -> None:
        """Use the ratings and first weights of a plan; make a new optimizer."""
        self.training = self.on_device(plan.training)
        self.held_out = self.on_device(plan.held_out)
        weights = {
            name: torch.nn.Parameter(torch.tensor(value, device=self.device))
            for name, value in plan.weights.items()
        }
        self.trunk = weights["trunk"]
        self.heads = [weights[f"head/{genre}"] for genre in GENRES]
        self.paths = torch.zeros(len(GENRES), device=self.device)
        make = getattr(lockstep, self.recipe.optimizer)
        self.optimizer = make(list(weights.values()), **self.recipe.arguments)
        if self.recipe.wrapper == "strict":
            raise HarnessError(
                "wrapper: expected 'none' or 'default' on PyTorch, got 'strict'; "
                "run it on tf, which has strict."
            )
        if self.recipe.wrapper != "none":
            self.optimizer = lockstep.MultitaskOptimizerWrapper(self.optimizer)

    def advance(self, batches, weights) -> None:
        """Take one step per batch: rows [steps, batch], weights [steps, genres]."""
        rows = torch.tensor(batches, dtype=torch.int64, device=self.device)
        factors = torch.tensor(weights, device=self.device)
        for batch, row in zip(rows, factors, strict=True):
            self.step(Ratings(*(part[batch] for part in self.training)), row)

    def step(self, ratings: Ratings, factors: Tensor) -> None:
        """Take one step; the factor of an absent genre is zero."""
        before = torch.cat([head.detach() for head in self.heads], dim=1)
        self.optimizer.zero_grad()
        torch.dot(factors, self.losses(ratings)).backward()
        self.optimizer.step()
        with torch.no_grad():
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
        measured = {}
        losses, paths = self.losses(self.held_out).tolist(), self.paths.tolist()
        for genre, loss, path in zip(GENRES, losses, paths, strict=True):
            measured |= {f"loss/{genre}": loss, f"path/{genre}": path}
        return measured

    def on_device(self, ratings: Ratings) -> Ratings:
        """Return the ratings as tensors on the device."""
        return Ratings(*(torch.tensor(part, device=self.device) for part in ratings))
