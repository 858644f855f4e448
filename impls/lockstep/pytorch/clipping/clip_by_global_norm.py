"""Global norm and factor of OpenSeq2Seq's clipping, computed in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import is_

import torch
from torch import Tensor

from lockstep.pytorch.clipping.clip_gradients import global_norm, with_values
from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.norms import LARGEST, accurate_norm, as_real
from lockstep.pytorch.tensors.rounding import reciprocal, rounded
from lockstep.pytorch.tensors.rows import as_rows

__all__ = [
    "clip_factor",
    "clip_scale",
    "norm_in_float32",
    "scale_in_float32",
    "scale_in_place",
]


def norm_in_float32(
    gradients: Sequence[Tensor | None],
    one_by_one: bool = False,
    total: Tensor | None = None,
) -> Tensor:
    """Return the norm of all tensors that are present: float32, 0-d.

    With ``one_by_one``, rows with the same index are not summed first, and the squares
    are added in the order of the original. ``total`` is the ``total_norm`` of the
    tensors, if it is already known.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    if one_by_one:
        stored = [as_rows(g).values if g.is_sparse else g for g in present]
        return global_norm(stored, torch.float32)
    return accurate_norm(present, total)


def clip_scale(norm: Tensor, clip_norm: float) -> Tensor:
    """Return the factor that brings ``norm`` down to ``clip_norm``: float32, 0-d.

    On the CPU it is computed with Python numbers, which are faster than 0-d tensors.
    """
    limit = rounded(clip_norm, torch.float32)
    if norm.is_cpu:
        factor = factor_of(norm.item(), limit)
        return norm.new_full((), factor, dtype=torch.float32)
    limits = torch.full_like(norm, limit)
    return limits * torch.minimum(1 / norm, 1 / limits)


def clip_factor(norm: float, clip_norm: float) -> float:
    """Return :func:`clip_scale` as a number, for a ``total_norm`` as a number."""
    largest = math.inf if norm * norm > LARGEST else rounded(norm, torch.float32)
    return factor_of(largest, rounded(clip_norm, torch.float32))


def factor_of(norm: float, limit: float) -> float:
    """Return limit x min(1 / norm, 1 / limit), each step rounded to float32."""
    factor = limit * min(reciprocal(norm), reciprocal(limit))
    return rounded(factor, torch.float32)


def scale_in_float32(
    gradients: Sequence[Tensor | None], scale: Tensor
) -> list[Tensor | None]:
    """Return the tensors times ``scale`` in float32; None stays None.

    Complex tensors become complex64.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    parts = shards.parts_of(present)
    scaled = map(with_reals, parts, foreach.scale(in_float32(parts), scale))
    results = iter(shards.laid_out(present, list(scaled)))
    return [None if gradient is None else next(results) for gradient in gradients]


def scale_in_place(
    gradients: Sequence[Tensor | None], scale: Tensor
) -> list[Tensor | None]:
    """Scale as :func:`scale_in_float32` does, but overwrite float32 tensors."""
    present = [gradient for gradient in gradients if gradient is not None]
    parts = shards.parts_of(present)
    wide = in_float32(parts)
    # On a GPU, reading the number would take longer than the products.
    if not (scale.is_cpu and scale.item() == 1):
        foreach.scale_in_place(wide, scale)
    if all(map(is_, wide, present)):
        return list(gradients)
    scaled = map(with_reals, parts, wide)
    results = iter(shards.laid_out(present, list(scaled)))
    return [None if gradient is None else next(results) for gradient in gradients]


def in_float32(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the elements, or sparse values, of each gradient as real float32."""
    values = [as_rows(g).values if g.is_sparse else g for g in gradients]
    reals = [v if v.is_floating_point() else as_real(v) for v in values]
    return [v if v.dtype == torch.float32 else v.float() for v in reals]


def with_reals(gradient: Tensor, reals: Tensor) -> Tensor:
    """Return the gradients with new elements: the inverse of :func:`in_float32`."""
    values = torch.view_as_complex(reals) if gradient.is_complex() else reals
    return with_values(gradient, values) if gradient.is_sparse else values
