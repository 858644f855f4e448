"""The three tasks in idiomatic PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.errors import HarnessError
from harness.tasks.multitask_digits.task import ABSENTEE, TASKS, Images, Plan, Recipe
from lockstep import pytorch as lockstep

CHUNK = 100
"""The number of steps whose batches are gathered together."""


class DigitsTrainer:
    """Eager training, with new parameters and a new optimizer for each run."""

    def __init__(self, recipe: Recipe, device: str) -> None:
        self.recipe = recipe
        self.device = device

    def reset(self, plan: Plan) -> None:
        """Use the images and first weights of a plan; make a new optimizer."""
        self.training = self.on_device(plan.training)
        self.held_out = self.on_device(plan.held_out)
        self.weights = {
            name: torch.nn.Parameter(torch.tensor(value, device=self.device))
            for name, value in plan.weights.items()
        }
        self.heads = [self.weights[f"head/{task}"] for task in TASKS]
        self.probes = [self.weights[f"probe/{task}"] for task in TASKS]
        self.paths = torch.zeros(len(TASKS), device=self.device)
        make = getattr(lockstep, self.recipe.optimizer)
        self.optimizer = make(list(self.weights.values()), **self.recipe.arguments)
        if self.recipe.wrapper == "strict":
            raise HarnessError(
                "wrapper: expected 'none' or 'default' on PyTorch, got 'strict'; "
                "run it on tf, which has strict."
            )
        if self.recipe.wrapper != "none":
            self.optimizer = lockstep.MultitaskOptimizerWrapper(self.optimizer)

    def advance(self, batches, weights) -> None:
        """Take one step per batch: rows [steps, batch], weights [steps, tasks]."""
        rows = torch.tensor(batches, dtype=torch.int64, device=self.device)
        factors = torch.tensor(weights, device=self.device)
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            images = zip(*(part[chunk].unbind() for part in self.training), strict=True)
            for batch, row in zip(images, factors[start : start + CHUNK], strict=True):
                self.step(Images(*batch), row)

    def step(self, images: Images, factors: Tensor) -> None:
        """Take one step; the factor of an absent task is zero."""
        before = [head.detach().clone() for head in self.heads]
        self.optimizer.zero_grad()
        losses = self.losses(images) - torch.stack(self.probes)
        torch.dot(factors, losses).backward()
        self.optimizer.step()
        with torch.no_grad():
            pairs = zip(self.heads, before, strict=True)
            self.paths += torch.stack([torch.dist(new, old) for new, old in pairs])

    def losses(self, images: Images) -> Tensor:
        """Return the mean losses of the three tasks: [3]."""
        hidden = torch.tanh(images.features @ self.weights["trunk"])
        hidden = functional.pad(hidden, (0, 1), value=1.0)
        digit, parity, centre = (hidden @ head for head in self.heads)
        return torch.stack(
            [
                functional.cross_entropy(digit, images.digit),
                functional.binary_cross_entropy_with_logits(
                    parity[:, 0], images.parity
                ),
                functional.mse_loss(centre[:, 0], images.centre),
            ]
        )

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Return name -> measured value after the steps so far."""
        losses = self.losses(self.held_out).tolist()
        paths, probes = self.paths.tolist(), torch.stack(self.probes).tolist()
        measured = {}
        for task, loss, probe, path in zip(TASKS, losses, probes, paths, strict=True):
            measured |= {f"loss/{task}": loss, f"probe/{task}": probe}
            measured[f"path/{task}"] = path
        for place in ("probe", "head"):
            variable = self.weights[f"{place}/{ABSENTEE}"]
            for name in self.recipe.slots:
                slot = self.optimizer.get_slot(variable, name)
                norm = 0.0 if slot is None else slot.norm().item()
                measured[f"state/{place}/{name}"] = norm
        return measured

    def on_device(self, images: Images) -> Images:
        """Return the images as tensors on the device, the digits in int64."""
        parts = Images(*(torch.tensor(part, device=self.device) for part in images))
        return parts._replace(digit=parts.digit.long())
