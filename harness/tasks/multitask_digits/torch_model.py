"""The three tasks in idiomatic PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.errors import HarnessError
from harness.tasks import own
from harness.tasks.absent_heads.training import Recipe, by_head
from harness.tasks.multitask_digits.task import ABSENTEE, TASKS, Images, Plan
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
        """Use the images and first weights of a plan; make a new optimizer."""
        self.training, self.held_out = map(self.on_device, plan[:2])
        self.weights = {
            name: torch.nn.Parameter(torch.tensor(value, device=self.device))
            for name, value in plan.weights.items()
        }
        self.heads = [self.weights[f"head/{task}"] for task in TASKS]
        self.probes = [self.weights[f"probe/{task}"] for task in TASKS]
        self.paths = torch.zeros(len(TASKS), device=self.device)
        parameters, arguments = list(self.weights.values()), dict(self.recipe.arguments)
        if self.recipe.optimizer:
            make = getattr(lockstep, self.recipe.optimizer)
            self.optimizer = make(parameters, **arguments)
        else:
            self.optimizer = own.make(arguments, parameters, torch.optim.Optimizer)
        if self.recipe.wrapper != "none":
            self.optimizer = lockstep.MultitaskOptimizerWrapper(self.optimizer)

    def on_device(self, images: Images) -> Images:
        """Return the images as tensors on the device, the digits in int64."""
        parts = Images(*(torch.tensor(part, device=self.device) for part in images))
        return parts._replace(digit=parts.digit.long())

    def advance(self, batches, weights) -> None:
        """Take one step per batch: rows [steps, batch], weights [steps, tasks]."""
        rows = torch.tensor(batches, dtype=torch.int64, device=self.device)
        factors = torch.tensor(weights, device=self.device)
        for batch, row in zip(rows, factors, strict=True):
            self.step(Images(*(part[batch] for part in self.training)), row)

    def step(self, images: Images, factors: Tensor) -> None:
        """Take one step; the factor of an absent task is zero."""
        before = [head.detach().clone() for head in self.heads]
        self.optimizer.zero_grad()
        losses = self.losses(images) - torch.stack(self.probes)
        torch.dot(factors, losses).backward()
        self.optimizer.step()
        with torch.no_grad():
            self.paths += torch.stack(list(map(torch.dist, self.heads, before)))

    def losses(self, images: Images) -> Tensor:
        """Return the mean losses of the three tasks: [3]."""
        hidden = torch.tanh(images.features @ self.weights["trunk"])
        hidden = functional.pad(hidden, (0, 1), value=1.0)
        digit, parity, centre = (hidden @ head for head in self.heads)
        odd = functional.binary_cross_entropy_with_logits(parity[:, 0], images.parity)
        right = functional.cross_entropy(digit, images.digit)
        return torch.stack(
            [right, odd, functional.mse_loss(centre[:, 0], images.centre)]
        )

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """Return name -> measured value after the steps so far."""
        values = self.losses(self.held_out), torch.stack(self.probes), self.paths
        loss, probe, path = (value.tolist() for value in values)
        measured = by_head(TASKS, loss=loss, probe=probe, path=path)
        for place in ("probe", "head"):
            for name in self.recipe.slots:
                weight = self.weights[f"{place}/{ABSENTEE}"]
                slot = self.optimizer.get_slot(weight, name)
                norm = 0.0 if slot is None else slot.norm().item()
                measured[f"state/{place}/{name}"] = norm
        return measured
