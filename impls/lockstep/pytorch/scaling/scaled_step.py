"""One step on the gradients of a scaled loss, in three ways."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.scaling.fused import (
    handing,
    make_momentum,
    own_gradients,
    require_fused,
    step_divided,
)
from lockstep.pytorch.scaling.scale_keeper import ScaleKeeper
from lockstep.pytorch.scaling.scaled_report import ScaledStep
from lockstep.pytorch.scaling.unscale import Look, fit, look, look_on_device, unscaled
from lockstep.pytorch.tensors.finite import finite_flags
from lockstep.pytorch.tensors.overlap import share_elements

__all__ = ["step_flushed", "step_on_device", "step_on_host", "with_norm"]


def step_on_host(
    owner: ScaleKeeper,
    seen: list[Tensor],
    pending: float | None,
    borrowed: bool,
    pieces: Sequence[Tensor] | None = None,
) -> ScaledStep:
    """Take or skip a step; move the scale.

    Args:
        owner: the wrapper.
        seen: the parameters that have a gradient.
        pending: the scale that the gradients hold; None: they hold none.
        borrowed: the gradients must keep their values.
        pieces: the same gradients in fewer tensors; None: those of ``seen``.
    """
    held = 1.0 if pending is None else pending
    gradients = [p.grad for p in seen] if pieces is None else pieces
    found = with_first_look(owner, look(gradients, held, owner.clip_norm))
    fits = found.fits
    if fits is not None and pieces is not None:
        fits = fit([p.grad for p in seen], held)
    before = owner.scale_object.value()
    applied = found.finite or not owner._skips
    if applied:
        if found.divisor != 1 and (borrowed or share_elements(gradients)):
            gradients = own_gradients(seen)
        step_divided(owner.inner_optimizer, gradients, found.divisor)
    # What the step replaced, such as a group, is looked up again.
    scale = owner.scale_object
    scale.move(found.finite)
    step = ScaledStep(seen, fits, (before, scale.value()), applied)
    return with_norm(owner, step, found)


@torch.no_grad()
def step_on_device(
    owner: ScaleKeeper,
    seen: list[Tensor],
    pending: Tensor | None,
    borrowed: bool,
    pieces: Sequence[Tensor] | None = None,
) -> ScaledStep:
    """Do what :func:`step_on_host` does, without waiting for a GPU."""
    optimizer, device = owner.inner_optimizer, seen[0].device
    require_fused(owner.owner, optimizer)
    held = torch.ones((), device=device) if pending is None else pending
    shrinks = pending is not None and owner.scale_object.may_be_below_one()
    gradients = [p.grad for p in seen]
    # On a GPU the norm of each tells at once whose fault it is.
    if pieces is None or not seen[0].is_cpu:
        pieces = gradients
    found = look_on_device(pieces, held, owner.clip_norm, shrinks)
    found = with_first_look(owner, found)
    fits = found.fits
    if fits is not None and pieces is not gradients:
        fits = fit(gradients, held)
    before = owner.scale_object.on_device(device)
    if borrowed or share_elements(gradients):
        own_gradients(seen)
    make_momentum(optimizer)
    divisor, skip = found.divisor.float(), (~found.finite).float()
    with handing(optimizer, divisor, skip):
        optimizer.step()
    scale = owner.scale_object
    scale.move(found.finite)
    scales = before, scale.on_device(device)
    return with_norm(owner, ScaledStep(seen, fits, scales, found.finite), found)


def step_flushed(
    owner: ScaleKeeper, seen: list[Tensor], pending: float | None
) -> ScaledStep:
    """Do what :func:`step_on_host` does; unscale as ``compute_gradients`` does."""
    if pending is not None:
        gradients = unscaled([p.grad for p in seen], pending, flush=True)
        for parameter, gradient in zip(seen, gradients, strict=True):
            parameter.grad = gradient
    before = owner.scale_object.value()
    fits = finite_flags([p.grad for p in seen])
    finite = all(fits)
    applied = finite or not owner._skips
    if applied:
        owner.inner_optimizer.step()
    scale = owner.scale_object
    scale.move(finite)
    return ScaledStep(seen, fits, (before, scale.value()), applied)


def with_first_look(owner: ScaleKeeper, found: Look) -> Look:
    """Return a look that is finite only if that of ``unscale_`` was, too."""
    first = owner.unscaled_by_hand
    return found if first is None else first.combine(found)


def with_norm(owner: ScaleKeeper, step: ScaledStep, found: Look) -> ScaledStep:
    """Return what a step did; its norm only if it was to be clipped."""
    if owner.unscaled_by_hand is not None and not owner._looks_by_itself:
        seen, fits = owner.unscaled_by_hand.flags(step.seen, step.fits)
        step = step._replace(seen=seen, fits=fits)
    if owner.clip_norm is None:
        return step
    return step._replace(norm=found.norm, clip_factor=found.clip_factor)
