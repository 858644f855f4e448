"""Scaled and clipped steps of Adam in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from harness.tasks.loss_scaling_overhead import CLIP, SCALE
from harness.tasks.overhead.torch_model import Gradients, parameters, prepared
from harness.timing import Makers, Prepared, Step
from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
)

UPDATES = 100
"""The updates of one timing, because one is hardly longer than a clock reading."""


def makers(seed: int, device: str, part: str, **what: str) -> Makers:
    """Return the builder of each step.

    ``part`` is ``step`` of a ``model``: ``ours``, ``fixed`` (ours with a constant
    scale), ``same`` (``GradScaler`` and the same fused Adam), ``usual`` (with default
    Adam), ``bare`` (neither scaled nor clipped). Or it is ``update`` of a ``scaler``:
    ``ours``, ``gradscaler``.
    """
    torch.set_num_threads(1)
    parts = {"step": step_makers, "update": update_makers}
    return parts[part](**what, device=device)


def step_makers(model: str, device: str) -> Makers:
    """Return the builder of each whole step on the parameters of a model."""
    gradients = Gradients(model, SCALE, device, torch.float32)

    def make(step: Callable[[list[Tensor]], tuple[Step, Step]]) -> Step:
        weights = parameters(model, device, torch.float32)
        scale, timed = step(weights)

        def prepare() -> None:
            gradients.fill(weights)
            scale()

        return prepared(prepare, timed, device)

    kinds = {
        "ours": our_step,
        "fixed": partial(our_step, scale=FixedLossScale(SCALE)),
        "same": partial(gradscaler_step, fused=True),
        "usual": partial(gradscaler_step, fused=None),
        "bare": bare_step,
    }
    return {name: partial(make, step) for name, step in kinds.items()}


def our_step(
    weights: list[Tensor], scale: FixedLossScale | None = None
) -> tuple[Step, Step]:
    """Return a function that scales a loss, and the step; the default is dynamic."""
    base = torch.optim.Adam(weights, lr=1e-4, fused=True)
    scale = scale or DynamicLossScale(SCALE)
    optimizer = MixedPrecisionLossScaleOptimizer(base, scale, clip_norm=CLIP)
    loss = weights[0].new_ones((), requires_grad=True)
    return lambda: optimizer.scale_loss(loss), optimizer.step


def gradscaler_step(weights: list[Tensor], fused: bool | None) -> tuple[Step, Step]:
    """Return a function that scales a loss, and the step of ``GradScaler``.

    ``fused`` is Adam's option; None is torch's default.
    """
    optimizer = torch.optim.Adam(weights, lr=1e-4, fused=fused)
    scaler = torch.amp.GradScaler(weights[0].device.type, init_scale=SCALE)
    loss = weights[0].new_ones(())

    def step() -> None:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(weights, CLIP)
        scaler.step(optimizer)
        scaler.update()

    return lambda: scaler.scale(loss), step


def bare_step(weights: list[Tensor]) -> tuple[Step, Step]:
    """Return a function without effect, and a step that neither scales nor clips."""
    return lambda: None, torch.optim.Adam(weights, lr=1e-4, fused=True).step


def update_makers(scaler: str, device: str) -> Makers:
    """Return the builders of the updates of a scaler: ``ours``, ``gradscaler``."""
    ours = dynamic_updates if scaler == "dynamic" else partial(automatic, scaler)
    peer = partial(gradscaler_updates, device)
    return {"ours": ours, "gradscaler": peer}


def dynamic_updates() -> Step:
    """Return updates of our dynamic scale after finite gradients."""
    return repeated(partial(DynamicLossScale(SCALE).move, True))


def automatic(algorithm: str) -> Step:
    """Return updates of our automatic scaler after finite gradients."""
    scaler = AutomaticLossScaler(algorithm)
    return repeated(partial(scaler.update_op, False, 1.0))


def repeated(update: Callable[[], object]) -> Step:
    """Return a step that calls ``update`` ``UPDATES`` times."""

    def updates() -> None:
        for _ in range(UPDATES):
            update()

    return Prepared(lambda: None, updates, UPDATES)


def gradscaler_updates(device: str) -> Step:
    """Return a step of one update of each of ``UPDATES`` scalers.

    A scaler must check gradients before each update, so each update has its own scaler.
    """
    weight = torch.nn.Parameter(torch.ones(1, device=device))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    kind = torch.device(device).type
    scalers = [torch.amp.GradScaler(kind, init_scale=1.0) for _ in range(UPDATES)]

    def look() -> None:
        for scaler in scalers:
            scaler.scale(weight)
            scaler.unscale_(optimizer)

    def updates() -> None:
        for scaler in scalers:
            scaler.update()

    return prepared(look, updates, device, UPDATES)
