"""Division of gradients by the loss scale, in place or as new tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.pytorch.tensors import foreach
from lockstep.pytorch.tensors.finite import times
from lockstep.pytorch.tensors.norms import magnitudes
from lockstep.pytorch.tensors.rounding import reciprocal, rounded

__all__ = [
    "fit",
    "replace_unscaled",
    "scale_reciprocal",
    "unscale_in_place",
    "unscaled",
]


def fit(gradients: Sequence[Tensor], scale: float | Tensor) -> Tensor:
    """Return whether each gradient, divided by ``scale``, fits its dtype: [n], bool.

    A flag is False if an element is not finite.
    """
    limits = [torch.finfo(gradient.dtype).max for gradient in gradients]
    quotients = (magnitudes(gradients) / scale).unbind()
    return torch.stack([q <= limit for q, limit in zip(quotients, limits, strict=True)])


@torch.no_grad()
def replace_unscaled(
    gradients: list[Tensor | None], scale: float | Tensor, flush: bool
) -> None:
    """Multiply gradients by the float32 reciprocal of the scale, and replace them.

    None stays None. The list is processed in runs, so that the memory of replaced
    gradients can be used for the next products.
    """
    factor = scale_reciprocal(scale)
    places = [k for k, gradient in enumerate(gradients) if gradient is not None]
    for positions in foreach.runs([gradients[k] for k in places]):
        run = [places[position] for position in positions]
        products = times([gradients[k] for k in run], factor, flush)
        for k, product in zip(run, products, strict=True):
            gradients[k] = product


@torch.no_grad()
def unscale_in_place(gradients: list[Tensor | None], scale: float | Tensor) -> None:
    """Do as :func:`replace_unscaled`, but overwrite all but half-precision gradients.

    Those are replaced, because their products are computed in float32.
    """
    half = [g if g is not None and g.itemsize < 4 else None for g in gradients]
    if any([g is not None for g in half]):
        replace_unscaled(half, scale, flush=False)
        both = zip(half, gradients, strict=True)
        gradients[:] = [g if product is None else product for product, g in both]
    wide = [g for g in gradients if g is not None and g.itemsize >= 4]
    values = [g._values() if g.is_sparse else g for g in wide]
    foreach.scale_in_place(values, scale_reciprocal(scale))


def scale_reciprocal(scale: float | Tensor) -> float | Tensor:
    """Return 1 / scale in float32."""
    if isinstance(scale, Tensor):
        return 1 / scale
    return reciprocal(rounded(scale, torch.float32))


def unscaled(
    gradients: Sequence[Tensor], scale: float | Tensor, flush: bool
) -> list[Tensor]:
    """Do as :func:`replace_unscaled`, but return the products."""
    products: list[Any] = list(gradients)
    replace_unscaled(products, scale, flush)
    return products
