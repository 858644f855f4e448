"""Training the transformer in eager PyTorch, with learning-rate warm-up."""

from __future__ import annotations

import torch

from harness.tasks.byte_transformer.torch_model import Transformer
from harness.tasks.warm_up.data import Plan
from harness.tasks.warm_up.settings import Settings
from lockstep.pytorch import NovoGrad

MOMENTUM = 0.9


class Trainer:
    """One run, with the training loop that users of PyTorch write."""

    def __init__(self, settings: Settings, plan: Plan, device: str) -> None:
        torch.set_num_threads(1)
        self.settings = settings
        self.batches = torch.tensor(plan.batches, device=device).long()
        self.held_out = torch.tensor(plan.held_out, device=device).long()
        self.model = Transformer(settings.shape, plan.weights, device)
        self.optimizer = make_optimizer(settings, list(self.model.parameters()))

    def train(self) -> int:
        """Take the steps; return the number of steps before a non-finite loss."""
        for step, windows in enumerate(self.batches):
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.rate(step)
            loss = self.model.loss(windows)
            if not loss.isfinite():
                return step
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return len(self.batches)

    def bits_per_byte(self) -> float:
        """Return the held-out loss in bits per byte."""
        return self.model.bits_per_byte(self.held_out)

    def state_bytes(self) -> int:
        """Return the bytes of all tensors of the optimizer's state."""
        tensors = [
            value
            for slots in self.optimizer.state.values()
            for value in slots.values()
            if torch.is_tensor(value)
        ]
        return sum(each.numel() * each.element_size() for each in tensors)

    def weight_bytes(self) -> int:
        """Return the bytes of the weights."""
        weights = self.model.parameters()
        return sum(each.numel() * each.element_size() for each in weights)


def make_optimizer(
    settings: Settings, weights: list[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer of a run, without weight decay."""
    rate = settings.learning_rate
    if settings.optimizer == "NovoGrad":
        return NovoGrad(weights, rate)
    if settings.optimizer == "AdamW":
        return torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    return torch.optim.SGD(weights, lr=rate, momentum=MOMENTUM)
