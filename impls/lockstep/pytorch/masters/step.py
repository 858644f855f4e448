"""One step on masters whose gradients lie in flat buffers."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from lockstep.pytorch.masters.gradients import MasterGradients, stored
from lockstep.pytorch.masters.scale import AutomaticScale
from lockstep.pytorch.scaling.fused import own_gradients, step_divided
from lockstep.pytorch.scaling.scale_keeper import ScaleKeeper
from lockstep.pytorch.scaling.scaled_report import ScaledStep
from lockstep.pytorch.scaling.scaled_step import step_on_device, step_on_host, with_norm
from lockstep.pytorch.scaling.unscale import look
from lockstep.pytorch.tensors.finite import finite_flags
from lockstep.pytorch.tensors.overlap import share_elements

__all__ = ["find_largest", "step_on_masters"]


def step_on_masters(
    owner: ScaleKeeper,
    gradients: MasterGradients,
    pending: float | Tensor | None,
    borrowed: bool,
) -> ScaledStep:
    """Take or skip a step; move the scale.

    Args:
        owner: the wrapper.
        gradients: what the masters have in ``.grad``.
        pending: the scale that the gradients hold; None: they hold none.
        borrowed: the gradients must keep their values.
    """
    seen, pieces = gradients.present, None if borrowed else gradients.pieces
    if owner.capturable:
        return step_on_device(owner, seen, pending, borrowed, pieces)
    if owner._looks_by_itself:
        return step_by_its_own_look(owner, gradients, pending, borrowed)
    return step_on_host(owner, seen, pending, borrowed, pieces)


def find_largest(
    owner: ScaleKeeper, gradients: MasterGradients, held: float | Tensor
) -> None:
    """Let the scale have the largest unscaled magnitude, if it moves by that."""
    scale = owner.scale_object
    if isinstance(scale, AutomaticScale) and scale.wants_amax:
        least = -math.inf if owner._looks_by_itself else 0.0
        largest = np.float32(gradients.largest(least))
        with np.errstate(all="ignore"):
            scale.amax = float(largest * (np.float32(1) / np.float32(held)))


def step_by_its_own_look(
    owner: ScaleKeeper,
    gradients: MasterGradients,
    pending: float | None,
    borrowed: bool,
) -> ScaledStep:
    """Let an automatic scaler alone skip steps, by its own look at the gradients.

    For it a step without any element overflows: its largest magnitude is -inf.
    """
    seen, pieces = gradients.present, gradients.pieces
    before = owner.scale_object.value()
    found = look(pieces, 1.0 if pending is None else pending, owner.clip_norm)
    fits = finite_flags([p.grad for p in seen])
    empty = not any(stored(piece).numel() for piece in pieces)
    overflows = empty and isinstance(owner.scale_object, AutomaticScale)
    finite = all(fits) and not overflows
    applied = finite or not owner._skips
    if applied:
        if found.divisor != 1 and (borrowed or share_elements(pieces)):
            pieces = own_gradients(seen)
        step_divided(owner.inner_optimizer, pieces, found.divisor)
    scale = owner.scale_object
    scale.move(finite)
    step = ScaledStep(seen, fits, (before, scale.value()), applied)
    return with_norm(owner, step, found)
