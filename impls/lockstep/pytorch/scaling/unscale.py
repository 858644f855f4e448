"""One look at scaled gradients: are they finite, their norm, what divides them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lockstep.pytorch.tensors import foreach
from lockstep.pytorch.tensors.finite import times
from lockstep.pytorch.tensors.norms import magnitudes, tensor_norms, total_norm

__all__ = ["Look", "divide", "fit", "look", "look_on_device", "unscaled"]

DOUBLE = torch.float64, torch.complex128
LARGEST = float(np.finfo(np.float32).max)


class Look(NamedTuple):
    """What was seen: numbers, or tensors of one device.

    Attributes:
        finite: whether to apply the gradients.
        fits: [n], of which gradients all elements are finite; None: all of all.
        norm: the global norm of the unscaled gradients, in float64.
        clip_factor: what they are multiplied by to be clipped, in float64.
        divisor: the one number that unscales and clips: scale / clip_factor.
    """

    finite: bool | Tensor
    fits: Tensor | None
    norm: float | Tensor
    clip_factor: float | Tensor
    divisor: float | Tensor


def look(gradients: Sequence[Tensor], scale: float, clip_norm: float | None) -> Look:
    """Look at gradients that hold a factor of ``scale``, in one host sync.

    norm = sqrt(sum g^2) / scale; clip_factor = min(1, clip_norm / norm), 1 if
    ``clip_norm`` is None. Finite: every element is and, as unscaled, fits its dtype;
    if they are to be clipped, float32 must hold the norm too.
    """
    norm = total_norm(gradients).item() / scale
    finite = math.isfinite(norm) and (clip_norm is None or norm <= LARGEST)
    fits = None if finite and scale >= 1 else fit(gradients, scale)
    finite = finite and (fits is None or bool(fits.all()))
    clipped = clip_norm is not None and norm > clip_norm
    factor = clip_norm / norm if clipped else 1.0
    return Look(finite, fits, norm, factor, scale / factor if factor else math.inf)


def look_on_device(
    gradients: Sequence[Tensor],
    scale: Tensor,
    clip_norm: float | None,
    may_be_below_one: bool,
) -> Look:
    """Return what :func:`look` does, to the bit, without asking a GPU.

    Whether ``scale`` is below 1 cannot be asked: ``may_be_below_one`` says it, and
    costs a second read of the gradients.
    """
    on_cpu, scale = gradients[0].is_cpu, scale.double()
    norms = total_norm(gradients) if on_cpu else tensor_norms(gradients)
    norm = torch.linalg.vector_norm(norms) / scale
    finite, factor = norm.isfinite(), torch.ones_like(norm)
    if clip_norm is not None:
        finite &= norm <= LARGEST
        factor = (clip_norm / norm).clamp(max=1.0)
    if may_be_below_one:
        fits = fit(gradients, scale)
        finite &= (scale >= 1) | fits.all()
    elif on_cpu:
        fits = None if finite else fit(gradients, scale)
    else:
        fits = norms.isfinite()
    return Look(finite, fits, norm, factor, scale / factor)


def fit(gradients: Sequence[Tensor], scale: float | Tensor) -> Tensor:
    """Say of each gradient whether all elements, divided by ``scale``, fit its dtype.

    A flag is False where an element is not finite: [n], bool.
    """
    limits = [torch.finfo(gradient.dtype).max for gradient in gradients]
    unscaled = (magnitudes(gradients) / scale).unbind()
    return torch.stack([u <= limit for u, limit in zip(unscaled, limits, strict=True)])


@torch.no_grad()
def unscaled(
    gradients: Sequence[Tensor | None], scale: float | Tensor, flush: bool
) -> list[Tensor | None]:
    """Return gradients times the float32 reciprocal of the scale; None stays None."""
    with np.errstate(all="ignore"):
        is_tensor = isinstance(scale, Tensor)
        factor = 1 / scale if is_tensor else float(1 / np.float32(scale))
    present = [gradient for gradient in gradients if gradient is not None]
    products = iter(times(present, factor, flush))
    return [None if gradient is None else next(products) for gradient in gradients]


@torch.no_grad()
def divide(gradients: Sequence[Tensor], divisor: float) -> None:
    """Divide in place: times the float32 reciprocal, rounded once to each dtype.

    Gradients in float64 are multiplied by the float64 reciprocal.
    """
    with np.errstate(all="ignore"):
        reciprocal = 1 / np.float64(divisor)
        factor = float(np.float32(reciprocal))
    values = [g._values() if g.is_sparse else g for g in gradients]
    double = [v for v in values if v.dtype in DOUBLE]
    foreach.scale_in_place(double, float(reciprocal))
    single = [v for v in values if v.itemsize >= 4 and v.dtype not in DOUBLE]
    foreach.scale_in_place(single, factor)
    half = [v for v in values if v.itemsize < 4]
    for value, product in zip(half, times(half, factor), strict=True):
        value.copy_(product)
