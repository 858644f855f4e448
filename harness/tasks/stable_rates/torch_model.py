"""The deep net in eager PyTorch, with SGD after ``post_process_gradients``."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks.digits import Images
from harness.tasks.stable_rates.task import Plan, Settings
from lockstep.pytorch import post_process_gradients


class Trainer:
    """Trains a net from its first weights, with a loop that users of PyTorch write."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        torch.set_num_threads(1)
        self.settings, self.device = settings, device
        self.training = self._images(plan.training)
        self.held_out = self._images(plan.held_out)
        self.batches = torch.tensor(plan.batches, device=device).long()
        self.first = [torch.tensor(weight, device=device) for weight in plan.weights]

    def _images(self, images: Images) -> tuple[Tensor, Tensor]:
        features, digit = (torch.tensor(part, device=self.device) for part in images)
        return features, digit.long()

    def train(self, rate: float) -> tuple[float, float]:
        """Train a net at a rate; return its held-out loss in nats and its accuracy."""
        weights = [torch.nn.Parameter(weight.clone()) for weight in self.first]
        momentum, method = self.settings.momentum, self.settings.method
        limit, larc = method.get("clip_gradients"), method.get("larc_params")
        optimizer = torch.optim.SGD(weights, lr=rate, momentum=momentum)
        features, digit = self.training
        for rows in self.batches:
            logits = logits_of(weights, features[rows])
            loss = functional.cross_entropy(logits, digit[rows])
            optimizer.zero_grad()
            loss.backward()
            if limit is not None or larc is not None:
                pairs = [(weight.grad, weight) for weight in weights]
                post_process_gradients(pairs, [], rate, limit, larc, in_place=True)
            optimizer.step()
        return measure(weights, *self.held_out)


def logits_of(weights: list[torch.nn.Parameter], features: Tensor) -> Tensor:
    """Return the logits, with tanh after every layer but the last."""
    *hidden, last = weights
    for weight in hidden:
        features = torch.tanh(features @ weight)
    return features @ last


@torch.no_grad()
def measure(
    weights: list[torch.nn.Parameter], features: Tensor, digit: Tensor
) -> tuple[float, float]:
    """Return the loss in nats, and the accuracy."""
    logits = logits_of(weights, features)
    right = (logits.argmax(1) == digit).float().mean()
    return functional.cross_entropy(logits, digit).item(), right.item()
