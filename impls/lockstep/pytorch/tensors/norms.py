"""A global norm in one read of every gradient, accurate for very large ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.devices import moved
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = [
    "LARGEST",
    "SMALL",
    "accurate_norm",
    "as_real",
    "magnitudes",
    "norm_of_each",
    "tensor_norms",
    "total_norm",
]

# So many elements float32 adds up with an error below 1e-7, or 2e-5 if all are equal,
# because then every addition rounds the same way.
BLOCK = 1 << 14
# So few elements are copied in less time than a launch takes.
SMALL = 1 << 12
# Outside, squares may have left the range of float32.
LOWEST, HIGHEST = 1e-15, 1e18
LARGEST = torch.finfo(torch.float32).max


def accurate_norm(gradients: Sequence[Tensor], norm: Tensor | None = None) -> Tensor:
    """Return the :func:`total_norm` in float32, infinite where its square would be.

    The clipping function does on every host what the original did with such a norm.
    ``norm``: the total norm, if it is known.
    """
    norm = total_norm(gradients) if norm is None else norm
    if norm.is_cpu:
        number = norm.item()
        largest = math.inf if number * number > LARGEST else number
        return torch.full((), largest, dtype=torch.float32)
    overflows = norm.square() > LARGEST
    return torch.where(overflows, torch.inf, norm).float()


@torch.no_grad()
def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return sqrt(sum of squares) of all elements: 0-d, float64.

    It is right to 1e-6; to 2e-5 if the elements of a large gradient are all equal.

    It is finite exactly if every element is, duplicate rows summed (float64 gradients:
    and below 1e154). It is on the device of the first gradient, and nothing waits for
    a GPU unless a gradient is sparse.

    On a GPU squares are taken and added in float64: reading takes longer than that. On
    the CPU it would take several times as long, so there rows of 16384 elements are
    added in float32 and the norms of the rows in float64. (One float32 sum over 100M
    elements is 1 % off.) Only where squares may have left the range of float32, a
    second look is taken in float64. Parts of DTensors are added up in float64, too.
    """
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    if shards.are_among(gradients):
        return torch.linalg.vector_norm(tensor_norms(gradients))
    values = stored_values(gradients)
    on_cpu = [v for v in values if v.is_cpu]
    if len(on_cpu) == len(values):
        return norm_on_cpu(on_cpu)
    norms = foreach.norms([v for v in values if not v.is_cpu])
    if on_cpu:
        norms.append(norm_on_cpu(on_cpu))
    return torch.linalg.vector_norm(together(norms, gradients[0].device))


@torch.no_grad()
def tensor_norms(gradients: Sequence[Tensor]) -> Tensor:
    """Return the norm of each gradient, squared and added in float64: [n]."""
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.combined_norms(tensor_norms(shards.parts_of(whole)), whole)
    norms = foreach.norms(stored_values(gradients))
    return together(norms, gradients[0].device)


@torch.no_grad()
def norm_of_each(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each tensor in float32, as right as :func:`total_norm`: [n].

    It is infinite where its square would leave the range of float32, and may be 0
    where the squares of all elements would. Nothing waits for a GPU unless a tensor is
    sparse. On the CPU a large tensor is added up in rows, as in :func:`total_norm`.
    """
    if shards.are_among(tensors):
        whole = shards.added_up(tensors)
        norm = shards.combined_norms(norm_of_each(shards.parts_of(whole)), whole)
    else:
        norms = foreach.part_by_part(stored_values(tensors), norms_alike)
        norm = together(norms, tensors[0].device).double()
    overflows = norm.square() > LARGEST
    return torch.where(overflows, torch.inf, norm).float()


def norms_alike(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the norms of tensors that share a device and a dtype: 0-d each."""
    # Reading takes longer than float64 does on a GPU; on the CPU it is the other way.
    if not tensors[0].is_cpu or tensors[0].itemsize == 8:
        return foreach.norms_alike(tensors, 2, torch.float64)
    # Of an expanded tensor, torch adds elements one by one, which is less exact.
    tensors = [tensor.contiguous() for tensor in tensors]
    is_long = [tensor.numel() > BLOCK for tensor in tensors]
    if not any(is_long):
        return foreach.norms_alike(tensors, 2, torch.float32)
    short = [tensor for tensor, long in zip(tensors, is_long, strict=True) if not long]
    norms = iter(foreach.norms_alike(short, 2, torch.float32))
    return [
        norm_by_rows(tensor) if long else next(norms)
        for tensor, long in zip(tensors, is_long, strict=True)
    ]


def norm_by_rows(tensor: Tensor) -> Tensor:
    """Return the norm of a large tensor on the CPU: 0-d, float32."""
    rows = torch.cat(norms_in_order(tensor.reshape(-1)))
    return torch.linalg.vector_norm(rows.double()).float()


@torch.no_grad()
def magnitudes(gradients: Sequence[Tensor]) -> Tensor:
    """Return the largest |g| of each gradient, NaN if one is: [n], float64.

    An empty gradient has 0. Nothing waits for a GPU unless a gradient is sparse. Of a
    DTensor NaN is infinity.
    """
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.largest(magnitudes(shards.parts_of(whole)), whole)
    values = [v if v.numel() else v.new_zeros(1) for v in stored_values(gradients)]
    return together(foreach.norms(values, torch.inf), gradients[0].device)


def together(numbers: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return 0-d tensors, wherever they are, as one on ``device``: [n]."""
    there = [n if n.device == device else moved(n, device) for n in numbers]
    return torch.stack(there)


def stored_values(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the real elements of each gradient, duplicate rows summed."""
    return [
        g if g.is_floating_point() and not g.is_sparse else real_values(g)
        for g in gradients
    ]


def real_values(gradient: Tensor) -> Tensor:
    """Return the real elements of a gradient, duplicate rows summed."""
    return as_real(sum_duplicates(gradient).values if gradient.is_sparse else gradient)


def as_real(tensor: Tensor) -> Tensor:
    """Return a complex tensor with its parts in a last axis, an integer one as float32.

    One of floating-point numbers is returned itself.
    """
    if not tensor.is_complex():
        return tensor if tensor.is_floating_point() else tensor.float()
    # Autograd's conjugates may be lazy, and such a tensor has no real view.
    return torch.view_as_real(tensor.resolve_conj())


def norm_on_cpu(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of all elements: 0-d, float64."""
    norm = torch.linalg.vector_norm(torch.cat(norms_by_rows(tensors)).double())
    if LOWEST < norm.item() < HIGHEST or not (norm or any(t.any() for t in tensors)):
        return norm
    return torch.linalg.vector_norm(torch.stack(foreach.norms(tensors)))


def norms_by_rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the norms of parts that cover all elements once: [n] each.

    A part is a row of a large tensor, a medium tensor, or a row of small ones that are
    laid end to end.
    """
    norms: list[Tensor] = []
    small: list[Tensor] = []
    medium: list[Tensor] = []
    for tensor in tensors:
        size = tensor.numel()
        if size < SMALL:
            small.append(tensor)
        elif size <= BLOCK:
            medium.append(tensor)
        else:
            norms += norms_in_order(tensor.reshape(-1))
    if medium:
        norms.append(torch.stack(foreach.part_by_part(medium, norms_alike)))
    for run in foreach.runs(small):
        norms += norms_in_order(foreach.end_to_end([small[k] for k in run]))
    return norms


def norms_in_order(flat: Tensor) -> list[Tensor]:
    """Return the norms of rows of BLOCK elements, and of what remains: [n] each."""
    flat = flat.contiguous()  # As in :func:`norms_alike`.
    even = flat.numel() // BLOCK * BLOCK
    rows = [norms_of_rows(flat[:even].view(-1, BLOCK))] if even else []
    if even < flat.numel() or not even:
        rows.append(norms_of_rows(flat[None, even:]))
    return rows


def norms_of_rows(rows: Tensor) -> Tensor:
    """Return the norm of each row, in float32 or float64: [n]."""
    wide = rows.float() if rows.itemsize < 4 else rows
    return torch.linalg.vector_norm(wide, dim=1)
