"""The scalers of PyTorch: ours, ours without a host sync, and ``GradScaler``."""

from __future__ import annotations

from typing import Any

import torch

from harness.tasks.scaler_limits.batches import NAMES, SHAPE, Batches
from harness.tasks.scaler_limits.settings import ON_DEVICE, PEER, RAISES, Settings
from harness.tasks.scaler_limits.subject import Scaling, Subject
from lockstep.pytorch import DynamicLossScale, MixedPrecisionLossScaleOptimizer


def make(settings: Settings, scaling: Scaling, device: str) -> Subject:
    """Return the scaler of these settings, with new weights."""
    kinds = {PEER: GradScaler, ON_DEVICE: OnDevice}
    return kinds.get(settings.subject, Lockstep)(settings, scaling, device)


class Model:
    """Two weights, a linear loss and SGD."""

    fused = False

    def __init__(self, settings: Settings, scaling: Scaling, device: str) -> None:
        torch.set_num_threads(1)
        self.parameters = {
            name: torch.nn.Parameter(torch.ones(SHAPE[1], device=device))
            for name in NAMES
        }
        self.sgd = torch.optim.SGD(
            self.parameters.items(),
            settings.rate,
            settings.momentum,
            fused=self.fused,
        )
        self.settings, self.scaling, self.device = settings, scaling, device

    def loss(self, batch: Batches) -> torch.Tensor:
        """Reset the gradients; return the sum of all weights times their rows."""
        self.sgd.zero_grad()
        rows = torch.tensor(batch, device=self.device)
        weights = self.parameters.values()
        return sum((w * row).sum() for w, row in zip(weights, rows, strict=True))

    def weights(self) -> list[Any]:
        """Return copies of the weights."""
        return [w.detach().cpu().numpy().copy() for w in self.parameters.values()]

    def slots(self) -> list[Any]:
        """Return copies of the momentum slots that exist."""
        states = (self.sgd.state[w] for w in self.parameters.values())
        buffers = (state.get("momentum_buffer") for state in states)
        return [b.cpu().numpy().copy() for b in buffers if b is not None]


class Lockstep(Model):
    """Our wrapper in a loop of two calls."""

    capturable = False

    def __init__(self, settings: Settings, scaling: Scaling, device: str) -> None:
        super().__init__(settings, scaling, device)
        self.scaled = MixedPrecisionLossScaleOptimizer(
            self.sgd,
            DynamicLossScale(scaling.initial, scaling.period),
            at_floor="raise" if settings.subject == RAISES else "warn",
            clip_norm=scaling.clip_norm,
            capturable=self.capturable,
        )

    def step(self, batch: Batches) -> None:
        """Take one step on a batch."""
        self.scaled.scale_loss(self.loss(batch)).backward()
        self.scaled.step()

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.scaled.loss_scale)


class OnDevice(Lockstep):
    """Our wrapper without device syncs, except for reads of its report."""

    fused = capturable = True

    def __init__(self, settings: Settings, scaling: Scaling, device: str) -> None:
        super().__init__(settings, scaling, device)
        self.steps = 0

    def step(self, batch: Batches) -> None:
        """Take one step; read the report every ``asked_every`` steps."""
        super().step(batch)
        self.steps += 1
        if self.steps % self.settings.asked_every == 0:
            _ = self.scaled.last_step


class GradScaler(Model):
    """``torch.amp.GradScaler`` in the loop of its documentation."""

    def __init__(self, settings: Settings, scaling: Scaling, device: str) -> None:
        super().__init__(settings, scaling, device)
        self.scaler = torch.amp.GradScaler(
            device, init_scale=scaling.initial, growth_interval=scaling.period
        )

    def step(self, batch: Batches) -> None:
        """Take one step as in torch's documentation; unscale only before clipping."""
        self.scaler.scale(self.loss(batch)).backward()
        if self.scaling.clip_norm is not None:
            self.scaler.unscale_(self.sgd)
            weights = self.parameters.values()
            torch.nn.utils.clip_grad_norm_(weights, self.scaling.clip_norm)
        self.scaler.step(self.sgd)
        self.scaler.update()

    def scale(self) -> float:
        """Return the scale of the next step."""
        return self.scaler.get_scale()
