"""The classifier in PyTorch: SGD, with its rate set by ``PolicyLR``."""

from __future__ import annotations

import torch
from torch.nn import functional

from harness.tasks.digits import CLASSES, INPUTS
from harness.tasks.policy_digits.data import Plan
from harness.tasks.policy_digits.settings import Settings
from lockstep.pytorch import PolicyLR


class Trainer:
    """One eager run, with the training loop that users of PyTorch write."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        torch.set_num_threads(1)
        self.training, self.held_out = (
            (torch.tensor(i.features, device=device), torch.tensor(i.digit).long())
            for i in (plan.training, plan.held_out)
        )
        self.batches = torch.tensor(plan.batches).long()
        zeros = torch.zeros(INPUTS, CLASSES, device=device)
        self.weight = torch.nn.Parameter(zeros)
        self.optimizer = torch.optim.SGD([self.weight], lr=settings.rate)
        arguments = settings.arguments
        strict = settings.mode == "strict"
        self.scheduler = PolicyLR(
            self.optimizer, settings.policy, strict=strict, **arguments
        )

    def advance(self, start: int, stop: int) -> list[float]:
        """Take the steps ``start`` to ``stop`` - 1; return the rate of each."""
        rates = []
        rows = self.batches[start:stop]
        chunk = (part[rows].unbind() for part in self.training)
        for features, digit in zip(*chunk, strict=True):
            loss = self.loss_of(features, digit)
            (self.weight.grad,) = torch.autograd.grad(loss, [self.weight])
            rates.append(self.optimizer.param_groups[0]["lr"])
            self.optimizer.step()
            self.scheduler.step()
        return rates

    def rate(self, step: int) -> float:
        """Return the rate of ``step``, which the scheduler has set."""
        return self.optimizer.param_groups[0]["lr"]

    @torch.no_grad()
    def loss(self) -> float:
        """Return the held-out loss in nats."""
        return self.loss_of(*self.held_out).item()

    def loss_of(self, features, digit) -> torch.Tensor:
        """Return the mean cross-entropy in nats."""
        return functional.cross_entropy(features @ self.weight, digit)
