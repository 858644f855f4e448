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
        scale = make_scale(self.settings, lockstep)
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
            loss, _ = self.loss(self.plan.batches[step], self.plan.factors[step])
            self.optimizer.zero_grad()
            self.optimizer.scale_loss(loss).backward()
            self.optimizer.step()
            self.count += self.optimizer.last_step.applied
            scales.append(self.scale())
        return scales

    def applied(self) -> int:
        """Return the number of steps so far that were not skipped."""
        return self.count

    def loss(self, rows: Array, factor: float) -> tuple[Tensor, list[Tensor]]:
        """Return the loss of a batch times a factor, and the activations."""
        chosen = torch.tensor(rows, device=self.device).long()
        images = Images(*(part[chosen] for part in self.training))
        logits, hidden = self.forward(images.features)
        return loss_of(logits, images.digit) * float(factor), hidden

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.optimizer.loss_scale)

    def gradients(self, rows: Array, factor: float) -> dict[str, Array]:
        """Return the gradients of the scaled loss before they are unscaled, flat."""
        loss, hidden = self.loss(rows, float(factor) * self.scale())
        tensors = torch.autograd.grad(loss, [*self.weights, *hidden])
        flat = [gradient.float().flatten() for gradient in tensors]
        split = {"weights": flat[:3], "activations": flat[3:]}
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
