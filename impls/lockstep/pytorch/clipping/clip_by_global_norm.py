"""OpenSeq2Seq's clipping by the global norm: everything in float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.clipping.clip_gradients import global_norm, with_values
from lockstep.pytorch.tensors import foreach
from lockstep.pytorch.tensors.norms import accurate_norm, as_real
from lockstep.pytorch.tensors.rounding import rounded
from lockstep.pytorch.tensors.rows import as_rows

__all__ = ["clip_scale", "norm_in_float32", "scale_in_float32", "scale_in_place"]


def norm_in_float32(
    gradients: Sequence[Tensor | None], one_by_one: bool = False
) -> Tensor:
    """Return sqrt(sum of squares) of what is present, in float32; nothing gives 0.

    Rows of a sparse gradient that share an index are summed first; ``one_by_one`` they
    are not, as if each were a row of its own, and squares are added in the original's
    order.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    if one_by_one:
        stored = [as_rows(g).values if g.is_sparse else g for g in present]
        return global_norm(stored, torch.float32)
    return accurate_norm(present)


def clip_scale(norm: Tensor, clip_norm: float) -> Tensor:
    """Return s = clip_norm min(1 / norm, 1 / clip_norm) in float32: 0-d.

    A norm of 0 gives 1 or the float32 next to it, an infinite one 0, NaN gives NaN.
    """
    limit = torch.full_like(norm, rounded(clip_norm, norm.dtype))
    return limit * torch.minimum(1 / norm, 1 / limit)


def scale_in_float32(
    gradients: Sequence[Tensor | None], scale: Tensor
) -> list[Tensor | None]:
    """Return float32(g) scale for each g, of the rows of a sparse one; None stays.

    A complex g becomes complex64.
    """
    present = [gradient for gradient in gradients if gradient is not None]
    scaled = map(with_reals, present, foreach.scale(in_float32(present), scale))
    return [None if gradient is None else next(scaled) for gradient in gradients]


def scale_in_place(
    gradients: Sequence[Tensor | None], scale: Tensor
) -> list[Tensor | None]:
    """Do as :func:`scale_in_float32`, and overwrite what is float32 already."""
    present = [gradient for gradient in gradients if gradient is not None]
    wide = in_float32(present)
    foreach.scale_in_place(wide, scale)
    scaled = map(with_reals, present, wide)
    return [None if gradient is None else next(scaled) for gradient in gradients]


def in_float32(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the real elements of each gradient, of a sparse one those of its rows."""
    values = [as_rows(g).values if g.is_sparse else g for g in gradients]
    return [as_real(value).float() for value in values]


def with_reals(gradient: Tensor, reals: Tensor) -> Tensor:
    """Return what :func:`in_float32` took apart, with other elements."""
    values = torch.view_as_complex(reals) if gradient.is_complex() else reals
    return with_values(gradient, values)
