"""The deep net in eager PyTorch, with SGD on float32 masters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from harness.tasks.deep_digits.task import Plan, Settings
from harness.tasks.digits import Images
from harness.tasks.loss_scales import make_scale
from lockstep import pytorch as lockstep
from lockstep.interface import Array

MOMENTUM = 0.9


class Trainer:
    """One run, with the training loop that users of PyTorch write."""

    def __init__(self, settings: Settings, device: str) -> None:
        torch.set_num_threads(1)
        self.settings, self.device = settings, device
        self.dtype = getattr(torch, settings.dtype)

    def reset(self, plan: Plan) -> None:
        """Use the images and first weights of a plan; make a new optimizer."""
        self.plan, self.count = plan, 0
        self.training, self.held_out = map(self.on_device, plan[:2])
        self.weights = [
            torch.nn.Parameter(torch.tensor(w, dtype=self.dtype, device=self.device))
            for w in plan.weights
        ]
        rate = self.settings.rate * 2.0**-self.settings.loss_log2
        base = torch.optim.SGD(self.weights, lr=rate, momentum=MOMENTUM)
        scale = make_scale(self.settings.method, lockstep)
        self.optimizer = lockstep.MixedPrecisionOptimizerWrapper(base, scale)

    def on_device(self, images: Images) -> Images:
        """Return the images as tensors on the device."""
        digit = torch.tensor(images.digit, device=self.device).long()
        cast = torch.tensor(images.features, dtype=self.dtype, device=self.device)
        return Images(cast, digit)

    def advance(self, start: int, stop: int) -> list[float]:
        """Take the steps ``start`` to ``stop`` - 1; return the scale after each."""
        scales = []
        for step in range(start, stop):
            loss = self.loss(self.plan.batches[step], self.plan.factors[step])
            self.optimizer.zero_grad()
            self.optimizer.scale_loss(loss).backward()
            self.optimizer.step()
            self.count += self.optimizer.last_step.applied
            scales.append(self.scale())
        return scales

    def applied(self) -> int:
        """Return the number of steps so far that were not skipped."""
        return self.count

    def loss(self, rows: Array, factor: float) -> Tensor:
        """Return the loss of a batch times a factor."""
        chosen = torch.tensor(rows, device=self.device).long()
        images = Images(*(part[chosen] for part in self.training))
        return self.loss_of(images) * float(factor)

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.optimizer.loss_scale)

    def gradients(self, rows: Array, factor: float) -> Array:
        """Return the gradients of the scaled loss before they are unscaled, flat."""
        loss = self.loss(rows, float(factor) * self.scale())
        tensors = torch.autograd.grad(loss, self.weights)
        return torch.cat([each.float().flatten() for each in tensors]).cpu().numpy()

    @torch.no_grad()
    def measure(self) -> float:
        return self.loss_of(self.held_out).item()

    def loss_of(self, images: Images) -> Tensor:
        """Return the mean cross-entropy in nats, in float32 whatever the weights."""
        first, layers, last = self.weights
        hidden = torch.tanh(images.features @ first)
        for layer in layers.unbind():
            hidden = torch.tanh(hidden @ layer)
        return functional.cross_entropy((hidden @ last).float(), images.digit)
