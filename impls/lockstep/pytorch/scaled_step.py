"""One step of the loss-scaling wrapper, in three ways, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

import torch
from torch import Tensor

from lockstep.interface import StepReport
from lockstep.pytorch.core.finite import finite_flags
from lockstep.pytorch.core.unscale import Look, look, look_on_device, unscaled
from lockstep.pytorch.fused import (
    handing,
    make_momentum,
    own_gradients,
    require_fused,
    step_divided,
)
from lockstep.pytorch.loss_scale import FixedLossScale
from lockstep.pytorch.scale_keeper import ScaleKeeper
from lockstep.spec import loss_scaling as words

__all__ = ["ScaledStep", "step_on_device", "step_on_host", "step_strictly"]


class ScaledStep(NamedTuple):
    """What a step did: numbers, or 0-d tensors that nobody has asked for yet.

    Attributes:
        seen: the parameters that had a gradient.
        fits: [len(seen)], whether each gradient was finite; None: all were.
        scales: the loss scale before and after the step.
        applied: whether the wrapped optimizer took its step.
        norm: the global norm of the unscaled gradients; None if it was not taken.
        clip_factor: what they were multiplied by to be clipped.
    """

    seen: list[Tensor]
    fits: Tensor | list[bool] | None
    scales: tuple[float | Tensor, float | Tensor]
    applied: bool | Tensor
    norm: float | Tensor | None = None
    clip_factor: float | Tensor | None = None

    def nonfinite(self, names: Mapping[Tensor, str]) -> list[str]:
        """Return the names of the parameters whose gradients were not finite."""
        if self.fits is None:
            return []
        fits = self.fits.tolist() if isinstance(self.fits, Tensor) else self.fits
        return [names[p] for p in compress(self.seen, [not fit for fit in fits])]

    def report(
        self, names: Mapping[Tensor, str], inner: StepReport | None
    ) -> words.ScaledStepReport:
        """Say it; ``inner``: the ``last_step`` of the wrapped optimizer, if any."""
        applied, found = bool(self.applied), self.nonfinite(names)
        had_gradient = set(self.seen)
        told = [n for p, n in names.items() if p.requires_grad or p in had_gradient]
        before, after = map(float, self.scales)
        told_norm = self.norm is not None and not found
        return words.report(
            inner if applied else None,
            told,
            found,
            (before, after),
            applied,
            float(self.norm) if told_norm else None,
            float(self.clip_factor) if told_norm and applied else None,
        )


def step_on_host(
    owner: ScaleKeeper, seen: list[Tensor], pending: float | None, borrowed: bool
) -> ScaledStep:
    """Take or skip a step; move the scale.

    Args:
        owner: the wrapper.
        seen: the parameters that have a gradient.
        pending: the scale that the gradients hold; None: they hold none.
        borrowed: the gradients must keep their values.
    """
    held = 1.0 if pending is None else pending
    found = look([p.grad for p in seen], held, owner.clip_norm)
    before = owner.scale_object.value()
    if found.finite:
        step_divided(owner.inner_optimizer, seen, found.divisor, borrowed)
    # What the step replaced, such as a group, is looked up again.
    scale = owner.scale_object
    scale.move(found.finite)
    return with_norm(owner, seen, found, (before, scale.value()))


@torch.no_grad()
def step_on_device(
    owner: ScaleKeeper, seen: list[Tensor], pending: Tensor | None, borrowed: bool
) -> ScaledStep:
    """Do what :func:`step_on_host` does, without waiting for a GPU."""
    optimizer, device = owner.inner_optimizer, seen[0].device
    require_fused(words.WRAPPER, optimizer)
    held = torch.ones((), device=device) if pending is None else pending
    shrinks = pending is not None and owner.scale_object.may_be_below_one()
    found = look_on_device([p.grad for p in seen], held, owner.clip_norm, shrinks)
    before = owner.scale_object.on_device(device)
    if borrowed:
        own_gradients(seen)
    make_momentum(optimizer)
    divisor, skip = found.divisor.float(), (~found.finite).float()
    with handing(optimizer, divisor, skip):
        optimizer.step()
    scale = owner.scale_object
    scale.move(found.finite)
    return with_norm(owner, seen, found, (before, scale.on_device(device)))


def step_strictly(
    owner: ScaleKeeper, seen: list[Tensor], pending: float | None
) -> ScaledStep:
    """Unscale as ``compute_gradients`` does; a fixed scale skips nothing."""
    if pending is not None:
        gradients = unscaled([p.grad for p in seen], pending, flush=True)
        for parameter, gradient in zip(seen, gradients, strict=True):
            parameter.grad = gradient
    before = owner.scale_object.value()
    fits = finite_flags([p.grad for p in seen])
    finite = all(fits)
    applied = finite or isinstance(owner.scale_object, FixedLossScale)
    if applied:
        owner.inner_optimizer.step()
    scale = owner.scale_object
    scale.move(finite)
    return ScaledStep(seen, fits, (before, scale.value()), applied)


def with_norm(
    owner: ScaleKeeper, seen: list[Tensor], found: Look, scales: tuple
) -> ScaledStep:
    """Return what a step did; its norm only if it was to be clipped."""
    step = ScaledStep(seen, found.fits, scales, found.finite)
    if owner.clip_norm is None:
        return step
    return step._replace(norm=found.norm, clip_factor=found.clip_factor)
