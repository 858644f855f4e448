"""The heads of 18 genres in idiomatic PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.errors import HarnessError
from harness.tasks import own
from harness.tasks.absent_heads.training import Recipe, by_head
from harness.tasks.movie_genres.task import GENRES, Plan, Ratings
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

    def reset(self, plan: Plan) -> None:
        """Use the ratings and first weights of a plan; make a new optimizer."""
        self.training, self.held_out = (
            Ratings(*(torch.tensor(part, device=self.device) for part in ratings))
            for ratings in (plan.training, plan.held_out)
        )
        self.trunk, *self.heads = weights = [
            torch.nn.Parameter(torch.tensor(value, device=self.device))
            for value in plan.weights.values()
        ]
        self.paths = torch.zeros(len(GENRES), device=self.device)
        parameters, arguments = weights, dict(self.recipe.arguments)
        if self.recipe.optimizer:
            make = getattr(lockstep, self.recipe.optimizer)
            self.optimizer = make(parameters, **arguments)
        else:
            self.optimizer = own.make(arguments, parameters, torch.optim.Optimizer)
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
