"""Clip by the global norm, as OpenSeq2Seq's two functions do (PyTorch)."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.docstrings import documented
from lockstep.messages import pytorch as torch_host
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.base.pairs import as_pairs, require_shape
from lockstep.messages.clipping import clip_by_global_norm as words
from lockstep.messages.clipping import refusals
from lockstep.messages.nouns import PYTORCH
from lockstep.pytorch.base.gradients import Pairs, refuse_sharded, require_tensor
from lockstep.pytorch.clipping.clip_by_global_norm import (
    clip_scale,
    norm_in_float32,
    scale_in_float32,
    scale_in_place,
)
from lockstep.quirks import Quirks, quirks_of

__all__ = [
    "as_parameter_pairs",
    "clip_by_global_norm",
    "clip_gradients_by_norm",
    "clip_pairs",
    "require_present",
    "require_shapes",
]


@torch.no_grad()
@documented
def clip_by_global_norm(
    t_list: Iterable[Tensor | None],
    clip_norm: float,
    use_norm: Tensor | float | None = None,
    name: str | None = None,
    strict: bool = False,
) -> tuple[list[Tensor | None], Tensor]:
    """...

    Args:
        t_list: tensors of any shape and dtype, sparse ones too, or None.

    Returns:
        The clipped tensors in float32 (complex ones in complex64), and the norm:
        float32, 0-d. float64 tensors are rounded to float32, as in the original.

    Example:
        >>> clipped, norm = clip_by_global_norm([torch.tensor([3.0, 4.0]), None], 2.5)
        >>> clipped[0].tolist(), clipped[1], norm.item()
        ([1.5, 2.0], None, 5.0)
    """
    quirks = quirks_of(strict)
    tensors = words.as_list(t_list, quirks.clip_scalar)
    for position, tensor in enumerate(tensors):
        if tensor is not None and not isinstance(tensor, Tensor):
            raise refusals.NOT_A_TENSOR.error(
                position=position, got=type(tensor).__name__
            )
    if strict:
        refuse_sharded(words.CLIP, tensors, "strict=True")
    if not quirks.clip_limit:
        words.check_limit(words.CLIP, "clip_norm", clip_norm)
        words.check_norm(use_norm)
    norm = norm_in_float32(tensors) if use_norm is None else as_norm(use_norm, tensors)
    clipped = scale_in_float32(tensors, clip_scale(norm, clip_norm))
    return shaped_as_original(clipped) if quirks.clip_scalar else clipped, norm


@torch.no_grad()
@documented
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
    clip_gradients: float,
    strict: bool = False,
) -> Pairs:
    """...

    Because of that, float64 gradients are rounded to float32, as in the original.

    Returns:
        The pairs with clipped gradients. The input gradients are not changed.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_gradients_by_norm``. For gradients in
    ``.grad``, ``torch.nn.utils.clip_grad_norm_`` does nearly the same in place.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> pairs = clip_gradients_by_norm([(torch.tensor([3.0, 4.0]), weight)], 2.5)
        >>> pairs[0][0].tolist()
        [1.5, 2.0]
    """
    pairs = as_parameter_pairs(grads_and_vars, words.BY_NORM)
    quirks = quirks_of(strict)
    if strict:
        refuse_sharded(words.BY_NORM, [g for g, _ in pairs], "strict=True")
    if not quirks.clip_limit:
        require_shapes(pairs, words.BY_NORM)
    return clip_pairs(pairs, clip_gradients, quirks)


def clip_pairs(
    pairs: Pairs,
    limit: float,
    quirks: Quirks,
    in_place: bool = False,
    total: Tensor | None = None,
) -> Pairs:
    """Clip pairs that have been checked.

    ``in_place`` overwrites float32 gradients. ``total`` is the global norm, if it is
    already known.
    """
    if quirks.clip_absent:
        require_present(words.BY_NORM, pairs)
    if not quirks.clip_limit:
        words.check_limit(words.BY_NORM, "clip_gradients", limit)
    gradients = [gradient for gradient, _ in pairs]
    norm = norm_in_float32(gradients, quirks.clip_duplicates, total)
    scale = scale_in_place if in_place else scale_in_float32
    clipped = scale(gradients, clip_scale(norm, limit))
    if quirks.clip_scalar:
        clipped = shaped_as_original(clipped)
    return [
        (g if g is None or g.dtype == p.dtype else g.to(p.dtype), p)
        for g, (_, p) in zip(clipped, pairs, strict=True)
    ]


def as_parameter_pairs(grads_and_vars: Iterable[Any], owner: str) -> Pairs:
    """Return a list of (tensor or None, tensor) pairs, or raise."""
    pairs = as_pairs(grads_and_vars, owner)
    for position, (gradient, parameter) in enumerate(pairs):
        if not isinstance(gradient, Tensor):
            require_tensor(gradient, owner, f"pair {position}")
        if not isinstance(parameter, Tensor):
            raise base_refusals.NOT_A_VARIABLE.error(
                owner=owner, nouns=PYTORCH, got=type(parameter).__name__
            )
        # The cheap check comes first: isinstance of Parameter takes ten times as long.
        is_leaf = parameter.requires_grad or isinstance(parameter, Parameter)
        if not is_leaf and isinstance(gradient, Parameter):
            raise torch_host.SWAPPED.error(owner=owner)
    return pairs


def require_shapes(pairs: Pairs, owner: str) -> None:
    """Raise unless each gradient has its parameter's shape; None is allowed."""
    for position, (gradient, parameter) in enumerate(pairs):
        if gradient is not None and gradient.shape != parameter.shape:
            shapes = tuple(gradient.shape), tuple(parameter.shape)
            require_shape(owner, f"pair {position}", *shapes)


def require_present(owner: str, pairs: Pairs) -> None:
    """Strict: raise for an absent gradient."""
    for position, (gradient, _) in enumerate(pairs):
        if gradient is None:
            raise refusals.ABSENT_GRADIENT.error(owner=owner, name=f"pair {position}")


def as_norm(use_norm: Any, tensors: list[Tensor | None]) -> Tensor:
    """Return ``use_norm`` in float32, 0-d."""
    if isinstance(use_norm, Tensor) and not use_norm.dim():
        return use_norm.detach().float()
    if not isinstance(use_norm, Real) or isinstance(use_norm, bool):
        is_tensor = isinstance(use_norm, Tensor)
        shape = f"shape {list(use_norm.shape)}" if is_tensor else repr(use_norm)
        raise refusals.BAD_NORM.error(got=shape)
    device = next((t.device for t in tensors if t is not None), None)
    return torch.full((), float(use_norm), dtype=torch.float32, device=device)


def shaped_as_original(tensors: list[Tensor | None]) -> list[Tensor | None]:
    """Return scalars with shape [1] and complex tensors without imaginary parts."""
    tensors = [t.real if t is not None and t.is_complex() else t for t in tensors]
    return [t.reshape(1) if t is not None and not t.dim() else t for t in tensors]
