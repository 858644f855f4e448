"""The deep net in eager PyTorch, with SGD on float32 masters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks.deep_digits.task import Plan, Settings, Taken
from harness.tasks.loss_scales import make_scale
from lockstep import pytorch as lockstep
from lockstep.interface import Array

MOMENTUM = 0.9


class Trainer:
    """One run, with the training loop that users of PyTorch write."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        torch.set_num_threads(1)
        self.device, self.dtype = device, getattr(torch, settings.dtype)
        self.features, self.digit = self._images(*plan.training)
        self.held_out = self._images(*plan.held_out)
        self.batches = torch.tensor(plan.batches, device=device).long()
        self.factors = plan.factors.tolist()
        self.weights = [
            torch.nn.Parameter(torch.tensor(weight, dtype=self.dtype, device=device))
            for weight in plan.weights
        ]
        rate = settings.rate * 2.0**-settings.loss_log2
        base = torch.optim.SGD(self.weights, lr=rate, momentum=MOMENTUM)
        scale = make_scale(settings, lockstep)
        self.optimizer = lockstep.MixedPrecisionOptimizerWrapper(base, scale)

    def _images(self, features: Array, digit: Array) -> tuple[Tensor, Tensor]:
        cast = torch.tensor(features, dtype=self.dtype, device=self.device)
        return cast, torch.tensor(digit, device=self.device).long()

    def advance(self, start: int, stop: int) -> list[Taken]:
        """Take the steps ``start`` to ``stop`` - 1; return the result of each."""
        taken = []
        for step in range(start, stop):
            rows = self.batches[step]
            logits, _ = self.forward(self.features[rows])
            loss = loss_of(logits, self.digit[rows]) * self.factors[step]
            self.optimizer.zero_grad()
            self.optimizer.scale_loss(loss).backward()
            self.optimizer.step()
            report = self.optimizer.last_step
            assert report is not None
            taken.append(Taken(self.scale(), report.applied))
        return taken

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.optimizer.loss_scale)

    def gradients(self, rows: Array, factor: float) -> dict[str, Array]:
        """Return the gradients of the scaled loss before they are unscaled, flat."""
        chosen = torch.tensor(rows, device=self.device).long()
        logits, hidden = self.forward(self.features[chosen])
        loss = loss_of(logits, self.digit[chosen]) * (float(factor) * self.scale())
        tensors = torch.autograd.grad(loss, [*self.weights, *hidden])
        flat = [gradient.float().flatten() for gradient in tensors]
        split = {"weights": flat[: len(self.weights)], "activations": flat[3:]}
        return {name: torch.cat(each).cpu().numpy() for name, each in split.items()}

    @torch.no_grad()
    def measure(self) -> tuple[float, float]:
        """Return the held-out loss in nats, and the accuracy."""
        features, digit = self.held_out
        logits, _ = self.forward(features)
        right = (logits.argmax(1) == digit).float().mean()
        return loss_of(logits, digit).item(), right.item()

    def forward(self, features: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the logits, and the activations of each layer."""
        first, layers, last = self.weights
        hidden = [torch.tanh(features @ first)]
        for layer in layers.unbind():
            hidden.append(torch.tanh(hidden[-1] @ layer))
        return hidden[-1] @ last, hidden


def loss_of(logits: Tensor, digit: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats, in float32 for logits of any dtype."""
    return functional.cross_entropy(logits.float(), digit)
