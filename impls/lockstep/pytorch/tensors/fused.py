"""Several operations on lists of tensors in one launch, with unchanged bits.

On the CPU, writing and reading the results between two launches costs more than the
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.tensors.foreach import roots, scale_alike

__all__ = [
    "add_each_scaled",
    "add_quotients",
    "add_scaled",
    "blend",
    "reciprocal_roots",
]


def add_scaled(
    targets: Sequence[Tensor], terms: Sequence[Tensor], factor: Tensor | float
) -> None:
    """Add terms times a number to tensors: t += x factor, rounded twice.

    The terms share a device and a dtype. The targets may have less precision.
    """
    if rounds_each_operation(terms[0]):
        # Computes 1 (x factor) + t. The product x factor is rounded by itself.
        ones = [terms[0].new_ones(())] * len(terms)
        torch._foreach_addcmul_(targets, terms, ones, value=number_of(factor))
    else:
        torch._foreach_add_(targets, scale_alike(terms, factor))


def add_each_scaled(
    targets: Sequence[Tensor], terms: Sequence[Tensor], factors: Tensor
) -> None:
    """Do as :func:`add_scaled`, but the k-th term has the k-th factor: [n]."""
    if rounds_each_operation(terms[0]):
        ones = [terms[0].new_ones(())] * len(terms)
        torch._foreach_addcmul_(targets, terms, ones, scalars=factors.tolist())
    else:
        torch._foreach_add_(targets, torch._foreach_mul(terms, factors.unbind()))


def add_quotients(
    targets: Sequence[Tensor],
    terms: Sequence[Tensor],
    factor: Tensor | float,
    divisors: Sequence[Tensor],
) -> None:
    """Add quotients to tensors: t += (x factor) / d, rounded three times."""
    if rounds_each_operation(terms[0]):
        torch._foreach_addcdiv_(targets, terms, divisors, value=number_of(factor))
    else:
        steps = scale_alike(terms, factor)
        torch._foreach_div_(steps, divisors)
        torch._foreach_add_(targets, steps)


def blend(
    targets: Sequence[Tensor], values: Sequence[Tensor], share: Tensor | float
) -> None:
    """Move tensors towards values: t += (x - t) share, rounded three times.

    All share a device and a dtype.
    """
    add_scaled(targets, torch._foreach_sub(values, targets), share)


def reciprocal_roots(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return 1 / sqrt(x) of each tensor, rounded as by ``rounding.rsqrt``."""
    if rounds_each_operation(tensors[0]):
        return list(torch._foreach_rsqrt(tensors))
    reciprocals = roots(tensors)
    torch._foreach_reciprocal_(reciprocals)
    return reciprocals


def rounds_each_operation(tensor: Tensor) -> bool:
    """Whether a fused operation rounds after each of its steps, as separate ones do.

    On the CPU it does. A GPU multiplies and adds with one rounding, and half precision
    is rounded only at the end.
    """
    return tensor.is_cpu and tensor.itemsize >= 4


def number_of(number: Tensor | float) -> float:
    """Return the number in a 0-d tensor. For a tensor on a GPU, this waits for it."""
    return number.item() if isinstance(number, Tensor) else number
