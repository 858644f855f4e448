"""The three tasks in idiomatic PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks.absent_heads import torch_model
from harness.tasks.absent_heads.training import by_head
from harness.tasks.multitask_digits.task import ABSENTEE, TASKS, Images, Plan


class Trainer(torch_model.Trainer):
    """Eager training, with new parameters and a new optimizer for each run."""

    def reset(self, plan: Plan) -> None:
        """Use the images and first weights of a plan; make a new optimizer."""
        self.start(plan, lambda *parts: Images(*parts)._replace(digit=parts[1].long()))
        self.heads = [self.weights[f"head/{task}"] for task in TASKS]
        self.probes = [self.weights[f"probe/{task}"] for task in TASKS]
        self.paths = torch.zeros(len(TASKS), device=self.device)

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
        for name in self.recipe.slots:
            slot = self.optimizer.get_slot(self.weights[f"head/{ABSENTEE}"], name)
            measured[f"state/head/{name}"] = 0.0 if slot is None else slot.norm().item()
        return measured
