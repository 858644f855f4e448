"""Clip gradients by their global norm, as TensorFlow and OpenSeq2Seq do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep import errors
from lockstep.checks import check_norm_limit, require
from lockstep.pytorch import foreach, shards
from lockstep.pytorch.foreach import reciprocal, rounded, with_values
from lockstep.pytorch.gradients import Pairs, as_pairs, dtype_name
from lockstep.pytorch.norms import LARGEST, accurate_norm

BY_GLOBAL_NORM = "clip_by_global_norm"
BY_NORM = "clip_gradients_by_norm"
MULTITASK = "clip_gradients_by_global_norm"


@torch.no_grad()
def clip_by_global_norm(
    t_list: Iterable[Tensor | None],
    clip_norm: float,
    use_norm: Tensor | float | None = None,
    name: str | None = None,
) -> tuple[list[Tensor | None], Tensor]:
    """Scale a list of tensors so that their global norm is at most ``clip_norm``.

    s = clip_norm min(1 / norm, 1 / clip_norm); each t becomes float32(t) s. An infinite
    norm makes finite elements 0 and the others NaN; a norm of NaN makes all NaN.

    Args:
        t_list: tensors of any shape and real dtype, sparse ones too, or None.
        clip_norm: the largest norm that is not clipped, > 0 and finite.
        use_norm: the norm, 0-d; None: the norm of ``t_list``, duplicate rows summed.
        name: as in TensorFlow; without effect.

    Returns:
        The clipped tensors in float32, and the norm: float32, 0-d. float64 tensors are
        rounded to float32, as in the original.

    Raises:
        NotASequenceError: a TypeError; ``t_list`` is a tensor or a string.
        MalformedPairsError: a TypeError; an entry is no tensor.
        DtypeError: a TypeError; a tensor is complex.
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0, or
            ``use_norm`` is a number < 0 or not 0-d.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_by_global_norm``.

    Example:
        >>> clipped, norm = clip_by_global_norm([torch.tensor([3.0, 4.0]), None], 2.5)
        >>> clipped[0].tolist(), clipped[1], norm.item()
        ([1.5, 2.0], None, 5.0)
    """
    if isinstance(t_list, Tensor | str):
        raise errors.NotASequenceError(
            f"{BY_GLOBAL_NORM}: t_list: expected a sequence of tensors, got a "
            f"{type(t_list).__name__}; put the tensors into a list."
        )
    tensors = list(t_list)
    for position, tensor in enumerate(tensors):
        if tensor is not None and not isinstance(tensor, Tensor):
            raise errors.MalformedPairsError(
                f"{BY_GLOBAL_NORM}: t_list: expected a tensor or None at position "
                f"{position}, got {type(tensor).__name__}; convert it to a tensor."
            )
        if tensor is not None and tensor.is_complex():
            raise errors.DtypeError(
                f"{BY_GLOBAL_NORM}: expected real tensors, got {dtype_name(tensor)}; "
                "pass their real and imaginary parts, with torch.view_as_real."
            )
    check_norm_limit(BY_GLOBAL_NORM, "clip_norm", clip_norm)
    if use_norm is None:
        norm = accurate_norm([tensor for tensor in tensors if tensor is not None])
    else:
        if not isinstance(use_norm, Tensor):
            fine = not use_norm < 0  # It may be NaN.
            require(BY_GLOBAL_NORM, "use_norm", use_norm, fine, "a number >= 0")
            device = next((t.device for t in tensors if t is not None), None)
            use_norm = torch.tensor(use_norm, dtype=torch.float32, device=device)
        shape, expected = list(use_norm.shape), "a number or a 0-d tensor"
        require(BY_GLOBAL_NORM, "shape of use_norm", shape, not shape, expected)
        norm = use_norm.detach().float()
    return scaled(tensors, clip_scale(norm, clip_norm), torch.float32), norm


@torch.no_grad()
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Tensor | None, Tensor]], clip_gradients: float
) -> Pairs:
    """Clip gradients by their global norm, each in its parameter's dtype afterwards.

    Norm and products are computed in float32, as by :func:`clip_by_global_norm`.
    Because of that, float64 gradients are rounded to float32, as in the original.

    Args:
        grads_and_vars: iterable of (gradient or None, parameter).
        clip_gradients: the largest global norm that is not clipped, > 0 and finite.

    Returns:
        The pairs with clipped gradients. The input gradients are not changed.

    Raises:
        OutOfRangeError: a ValueError; ``clip_gradients`` is not a finite number > 0.
        MalformedPairsError: a TypeError; not pairs of a gradient and a parameter.
        NoGradientsError: a ValueError; the list is empty.
        ShapeError: a ValueError; a gradient has another shape than its parameter.

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_gradients_by_norm``. For gradients in
    ``.grad``, ``torch.nn.utils.clip_grad_norm_`` does nearly the same in place.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> pairs = clip_gradients_by_norm([(torch.tensor([3.0, 4.0]), weight)], 2.5)
        >>> pairs[0][0].tolist()
        [1.5, 2.0]
    """
    return clip_pairs(parameter_pairs(grads_and_vars, BY_NORM), clip_gradients)


def clip_pairs(
    pairs: Pairs, limit: float, in_place: bool = False, total: Tensor | None = None
) -> Pairs:
    """Clip checked pairs, float32 gradients maybe in place; ``total``: their norm."""
    check_norm_limit(BY_NORM, "clip_gradients", limit)
    gradients = [gradient for gradient, _ in pairs]
    norm = accurate_norm([g for g in gradients if g is not None], total)
    scale = clip_scale(norm, limit)
    clipped = scaled(gradients, scale, torch.float32, in_place)
    return [
        (g if g is None or g.dtype == p.dtype else g.to(p.dtype), p)
        for g, (_, p) in zip(clipped, pairs, strict=True)
    ]


@torch.no_grad()
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Tensor | None, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
) -> tuple[Pairs, Tensor]:
    """Scale all gradients so that their global norm is at most ``clip_norm``.

    norm = sqrt(sum g^2) over the gradients that are present;
    s = clip_norm min(1 / norm, 1 / clip_norm); each g becomes g s. A norm that is not
    finite makes every gradient NaN.

    Args:
        gradients_variables: iterable of (gradient or None, parameter), dense or sparse.
        clip_norm: the largest global norm that is not clipped, > 0 and finite.
        error_if_nonfinite: raise instead of returning NaN; costs a host sync.

    Returns:
        The pairs with clipped gradients (new tensors; None stays None), and the norm:
        0-d, float32.

    Raises:
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0.
        MalformedPairsError: a TypeError; not pairs of a gradient and a parameter.
        NoGradientsError: a ValueError; the list is empty.
        DtypeError: a TypeError; a gradient is complex, or of integers.
        NonFiniteNormError: a ValueError; see ``error_if_nonfinite``.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.clip_gradients_by_global_norm``. Unlike
    ``torch.nn.utils.clip_grad_norm_`` it works on pairs, adds no 1e-6 to the norm, and
    its norm has an error of at most 1e-6 at 100M elements.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> pairs, norm = clip_gradients_by_global_norm(
        ...     [(torch.tensor([3.0, 4.0]), weight)], clip_norm=2.5
        ... )
        >>> pairs[0][0].tolist(), norm.item()
        ([1.5, 2.0], 5.0)
    """
    pairs = as_pairs(gradients_variables, MULTITASK)
    gradients = [gradient for gradient, _ in pairs]
    present = [gradient for gradient in gradients if gradient is not None]
    check_norm_limit(MULTITASK, "clip_norm", clip_norm)
    for gradient in present:
        if not gradient.is_floating_point():
            raise errors.DtypeError(  # The factor would be rounded.
                f"{MULTITASK}: expected floating-point gradients, got "
                f"{dtype_name(gradient)}; cast them first."
            )
    norm = accurate_norm(present)
    if error_if_nonfinite and not norm.isfinite():
        raise errors.NonFiniteNormError(
            f"{MULTITASK}: expected a finite global norm, got {norm.item()}; look for "
            "the gradient that overflowed, or leave error_if_nonfinite off."
        )
    factor = torch.where(norm.isfinite(), clip_scale(norm, clip_norm), torch.nan)
    clipped = scaled(gradients, factor)
    return list(zip(clipped, [v for _, v in pairs], strict=True)), norm


def clip_scale(norm: Tensor, clip_norm: float) -> Tensor:
    """Return clip_norm min(1 / norm, 1 / clip_norm): float32, 0-d."""
    limit = rounded(clip_norm, torch.float32)
    if norm.is_cpu:  # Python numbers are faster.
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


def scaled(
    gradients: Sequence[Tensor | None],
    scale: Tensor,
    dtype: torch.dtype | None = None,
    in_place: bool = False,
) -> list[Tensor | None]:
    """Return the tensors, cast to ``dtype``, times ``scale``; None stays None."""
    present = [gradient for gradient in gradients if gradient is not None]
    parts = shards.parts_of(present)
    values = [g._values() if g.is_sparse else g for g in parts]
    if dtype is not None:
        values = [v if v.dtype == dtype else v.to(dtype) for v in values]
    if not in_place:
        values = foreach.scale(values, scale)
    # On a GPU, reading the number would take longer than the products.
    elif not (scale.is_cpu and scale.item() == 1):
        foreach.scale_in_place(values, scale)
    results = iter(shards.laid_out(present, list(map(with_values, parts, values))))
    return [None if gradient is None else next(results) for gradient in gradients]


def parameter_pairs(grads_and_vars: Iterable[Any], owner: str) -> Pairs:
    """Return a list of (gradient or None, parameter) of equal shapes, or raise."""
    pairs = as_pairs(grads_and_vars, owner)
    for position, (gradient, parameter) in enumerate(pairs):
        # A gradient that autograd would train is a parameter.
        is_weight = gradient is not None and gradient.requires_grad and gradient.is_leaf
        if is_weight or not isinstance(parameter, Tensor):
            raise errors.MalformedPairsError(
                f"{owner}: expected pairs (gradient, parameter), got "
                f"{type(parameter).__name__} as the parameter at position {position}; "
                "put the gradient first and the parameter second."
            )
        if gradient is not None and gradient.shape != parameter.shape:
            raise errors.ShapeError(
                f"{owner}: expected a gradient of shape {list(parameter.shape)} for "
                f"'pair {position}', got {list(gradient.shape)}; "
                "pass the gradient of this parameter."
            )
    return pairs
