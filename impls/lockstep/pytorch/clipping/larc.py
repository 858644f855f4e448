"""LARC on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from lockstep.messages.clipping.larc import LarcPolicy
from lockstep.messages.masters.mixed_precision import LARGEST
from lockstep.pytorch.clipping.clip_gradients import lane_sum, with_values
from lockstep.pytorch.masters.buffers import saturating_cast
from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.norms import norm_of_each, together
from lockstep.pytorch.tensors.rounding import sqrt
from lockstep.pytorch.tensors.rows import as_rows

__all__ = [
    "larc_ratio",
    "norms_as_original",
    "raw_ratio",
    "scale_by_ratios",
    "scale_in_place",
    "tensor_norms",
]


def tensor_norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each tensor, with duplicate rows summed: float32, [n]."""
    return norm_of_each(tensors)


def norms_as_original(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norms of dense tensors, summed in the order of the original."""
    sums = lane_sum(tensor.float().square() for tensor in tensors)
    return sqrt(together(sums, tensors[0].device))


def raw_ratio(
    policy: LarcPolicy, rate: Tensor, weight: Tensor, gradient: Tensor
) -> Tensor:
    """Return the ratios before the limit of 1, in float32: [n].

    For the formula see :func:`lockstep.reference.clipping.larc.raw_ratio`. ``rate`` is
    the learning rate, 0-d or [n]. ``weight`` and ``gradient`` are the norms |w| and
    |g|, [n].
    """
    divisor, still = gradient + policy.epsilon, (weight == 0) | (gradient == 0)
    if policy.mode == "clip":
        divisor, still = rate * divisor, still | (rate == 0)
    ratio = (policy.eta * weight / divisor).clamp_min(policy.min_update)
    if not policy.guarded:
        return ratio
    known = (weight + gradient).isfinite()
    return torch.where(still & known, 1.0, ratio)


def larc_ratio(policy: LarcPolicy, raw: Tensor) -> Tensor:
    """Return the ratios, in mode "clip" at most 1."""
    return raw.clamp_max(1) if policy.mode == "clip" else raw


def scale_by_ratios(gradients: Sequence[Tensor], ratios: Tensor) -> list[Tensor]:
    """Return each gradient times its ratio; ``ratios`` [n] are rounded to its dtype.

    For half precision, a ratio is first clamped to the largest magnitude of the dtype.
    """
    parts = shards.parts_of(gradients)
    scaled = foreach.scale_each(stored_values(parts), partial(cast_ratio, ratios))
    return shards.laid_out(gradients, list(map(with_values, parts, scaled)))


def scale_in_place(gradients: Sequence[Tensor], ratios: Tensor) -> None:
    """Scale as :func:`scale_by_ratios` does, but overwrite the gradients."""
    values = stored_values(shards.parts_of(gradients))
    foreach.scale_each_in_place(values, partial(cast_ratio, ratios))


def stored_values(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the elements, or stored sparse values, of each gradient."""
    return [as_rows(g).values if g.is_sparse else g for g in gradients]


def cast_ratio(ratio: Tensor, dtype: torch.dtype) -> Tensor:
    """Round ratios to ``dtype``; clamp them if it is half precision."""
    halves = str(dtype).removeprefix("torch.") in LARGEST
    return saturating_cast(ratio, dtype) if halves else ratio.to(dtype)
