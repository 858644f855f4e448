"""Norms and finite checks of gradients in one read of each, and rows of sparse ones.

They are accurate for large gradients too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lockstep.errors import DtypeError
from lockstep.pytorch import foreach, shards

# Up to this size, the error of a float32 sum is below 1e-7. It is up to 2e-5 if all
# elements are equal, because then every addition rounds the same way.
BLOCK = 1 << 14
# Below this size, copying the elements takes less time than a launch.
SMALL = 1 << 12
# For norms outside these bounds, squares may have left the range of float32.
LOWEST, HIGHEST = 1e-15, 1e18
LARGEST = torch.finfo(torch.float32).max

FLAG = 1 << 14
"""Up to this size, checking elements in one launch is faster than a sum of each."""


class Rows(NamedTuple):
    """Row ``values[k]`` belongs to row ``indices[k]``."""

    indices: Tensor
    values: Tensor


def as_rows(gradient: Tensor) -> Rows:
    """Return indices [k] and values [k, ...] of a sparse gradient, in stored order."""
    return Rows(gradient._indices()[0], gradient._values())


def sum_duplicates(gradient: Tensor) -> Rows:
    """Return distinct, ascending ``indices`` and the sums of their ``values``."""
    if gradient.is_coalesced():
        return as_rows(gradient)
    # coalesce() is not used, because from 17 rows on its sort is not stable.
    indices, values = as_rows(gradient)
    ascending, order = torch.sort(indices, stable=True)
    distinct, counts = torch.unique_consecutive(ascending, return_counts=True)
    ordered = values.index_select(0, order)
    sums = torch.segment_reduce(ordered, "sum", lengths=counts, axis=0, unsafe=True)
    return Rows(distinct, sums)


def stored_values(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the elements of each gradient, duplicate rows summed; integers as float32.

    Raises:
        DtypeError: a gradient is complex.
    """
    return [
        g if g.is_floating_point() and not g.is_sparse else real_values(g)
        for g in gradients
    ]


def real_values(gradient: Tensor) -> Tensor:
    """Do as :func:`stored_values`, for one gradient."""
    if gradient.is_complex():
        raise DtypeError(
            f"expected real gradients, got {gradient.dtype}; pass their real and "
            "imaginary parts as two parameters, with torch.view_as_real."
        )
    values = sum_duplicates(gradient).values if gradient.is_sparse else gradient
    return values if values.is_floating_point() else values.float()


def accurate_norm(gradients: Sequence[Tensor], norm: Tensor | None = None) -> Tensor:
    """Return :func:`total_norm` in float32; infinity if its square exceeds float32."""
    norm = total_norm(gradients) if norm is None else norm
    if norm.is_cpu:
        number = norm.item()
        largest = math.inf if number * number > LARGEST else number
        return norm.new_full((), largest, dtype=torch.float32)
    overflows = norm.square() > LARGEST
    return torch.where(overflows, torch.inf, norm).float()


@torch.no_grad()
def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the square root of the sum of squares of all elements: 0-d, float64.

    The relative error is at most 1e-6, or 2e-5 if all elements of a large gradient are
    equal.

    The norm is finite if and only if every element is, with duplicate rows summed.
    Float64 elements must also be below 1e154, and those of DTensors on the CPU below
    1e18. The result is on the device of the first gradient. Nothing waits for a GPU
    unless a gradient is sparse.

    A GPU squares and adds in float64, because reading the elements takes longer than
    that. On the CPU float64 would take several times as long. So the CPU adds rows of
    16384 elements in float32, and the norms of the rows in float64. (One float32 sum
    over 100M elements is 1 % off.) If squares may have left the range of float32, it
    computes the norm again in float64.
    """
    if not gradients:
        return torch.zeros((), dtype=torch.float64, device="cpu")
    if shards.are_among(gradients):
        return torch.linalg.vector_norm(tensor_norms(gradients))
    values = stored_values(gradients)
    on_cpu = [v for v in values if v.is_cpu]
    if len(on_cpu) == len(values):
        return norm_on_cpu(on_cpu)
    norms = float64_norms([v for v in values if not v.is_cpu])
    if on_cpu:
        norms.append(norm_on_cpu(on_cpu))
    return torch.linalg.vector_norm(together(norms, gradients[0].device))


@torch.no_grad()
def norm_of_each(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each tensor: [n], float32, as accurate as :func:`total_norm`.

    A norm is infinite if float32 cannot hold its square. It may be 0 if the squares of
    all elements are too small for float32. Nothing waits for a GPU unless a tensor is
    sparse. On the CPU a large tensor is added in rows, as in :func:`total_norm`.
    """
    norms = tensor_norms(tensors)
    overflows = norms.square() > LARGEST
    return torch.where(overflows, torch.inf, norms).float()


def tensor_norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each tensor: [n], float64, on the device of the first."""
    if shards.are_among(tensors):
        whole = shards.added_up(tensors)
        parts = tensor_norms(shards.parts_of(whole)).double()
        return shards.sums(parts.square(), whole).sqrt()
    norms = foreach.part_by_part(stored_values(tensors), norms_alike)
    return together(norms, tensors[0].device).double()


def norms_alike(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the norms of tensors that share a device and a dtype: 0-d each."""
    # On a GPU reading takes longer than float64 arithmetic. On the CPU it does not.
    if not tensors[0].is_cpu or tensors[0].itemsize == 8:
        return list(torch._foreach_norm(tensors, dtype=torch.float64))
    # Of an expanded tensor, torch adds elements one by one, which is less exact.
    tensors = [tensor.contiguous() for tensor in tensors]
    short = [tensor for tensor in tensors if tensor.numel() <= BLOCK]
    norms = iter(torch._foreach_norm(short, dtype=torch.float32) if short else ())
    found: list[Tensor] = []
    for tensor in tensors:
        if tensor.numel() <= BLOCK:
            found.append(next(norms))
        else:
            rows = torch.cat(norms_in_order(tensor.reshape(-1)))
            found.append(torch.linalg.vector_norm(rows.double()).float())
    return found


def float64_norms(tensors: Sequence[Tensor], order: float = 2) -> list[Tensor]:
    """Return the norm of each tensor, computed in float64: 0-d each."""
    return foreach.part_by_part(
        tensors, lambda part: torch._foreach_norm(part, order, dtype=torch.float64)
    )


@torch.no_grad()
def magnitudes(gradients: Sequence[Tensor]) -> Tensor:
    """Return the largest |g| of each gradient: [n], float64.

    It is NaN if an element is NaN, and for a DTensor infinity instead. An empty
    gradient has 0. Nothing waits for a GPU unless a gradient is sparse.
    """
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.largest(magnitudes(shards.parts_of(whole)), whole)
    values = [v if v.numel() else v.new_zeros(1) for v in stored_values(gradients)]
    return together(float64_norms(values, torch.inf), gradients[0].device)


def together(numbers: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return 0-d tensors from any devices as one tensor on ``device``: [n]."""
    return torch.stack(
        [n if n.device == device else foreach.moved(n, device) for n in numbers]
    )


def norm_on_cpu(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of all elements: 0-d, float64."""
    norm = torch.linalg.vector_norm(torch.cat(norms_by_rows(tensors)).double())
    if LOWEST < norm.item() < HIGHEST or not (norm or any(t.any() for t in tensors)):
        return norm
    return torch.linalg.vector_norm(torch.stack(float64_norms(tensors)))


def norms_by_rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return norms of rows, medium tensors and joined small ones: [n] each."""
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
        norms.append(tensor_norms(medium))
    for run in foreach.runs(small):
        norms += norms_in_order(foreach.end_to_end([small[k] for k in run]))
    return norms


def norms_in_order(flat: Tensor) -> list[Tensor]:
    """Return the norms of rows of BLOCK elements, and of the remainder: [n] each."""
    flat = flat.contiguous()  # As in :func:`norms_alike`.
    even = flat.numel() // BLOCK * BLOCK
    rows = [flat[:even].view(-1, BLOCK)] if even else []
    if even < flat.numel() or not even:
        rows.append(flat[None, even:])
    wide = [r.float() if r.itemsize < 4 else r for r in rows]
    return [torch.linalg.vector_norm(r, dim=1) for r in wide]


# -- finite checks ---------------------------------------------------------------------


def are_small(gradients: Sequence[Tensor]) -> bool:
    """Whether these are dense float32 gradients on the CPU, and all are small."""
    if shards.are_among(gradients):
        return False
    return all(
        [
            g.dtype == torch.float32
            and g.numel() <= FLAG
            and g.layout == torch.strided
            and g.is_cpu
            and g.is_contiguous()
            for g in gradients
        ]
    )


@torch.no_grad()
def are_surely_finite(gradients: Sequence[Tensor]) -> bool:
    """Whether all gradients are finite by a quick check; if False, they still may be.

    On the CPU small gradients are checked element by element in one launch. Of a large
    one the sum is read: if it is finite, so are all elements. On other devices and for
    DTensors a finite norm proves it, with one host sync.
    """
    if shards.are_among(gradients) or not all([g.is_cpu for g in gradients]):
        return math.isfinite(total_norm(gradients).item())
    values = stored_values(gradients)
    small = [v for v in values if v.numel() <= FLAG and v.is_contiguous()]
    if len(small) < len(values):
        large = [v for v in values if v.numel() > FLAG or not v.is_contiguous()]
        sums = [wide_sum(v) for v in large]
        if not all([math.isfinite(total.item()) for total in sums]):
            return False
    return foreach.are_finite(small)


def wide_sum(values: Tensor) -> Tensor:
    """Return the sum of all elements: 0-d, for half precision in float32."""
    return values.sum(dtype=torch.float32 if values.itemsize < 4 else None)


def finite_flags(gradients: Sequence[Tensor]) -> list[bool]:
    """Return, for each gradient, whether all its elements are finite.

    Duplicate rows are summed first. On a GPU it costs one host sync. On the CPU the
    sums are checked first: if a sum is finite, so are all elements. If not, the
    elements are checked, because finite elements may have an infinite sum.
    """
    if not all([gradient.is_cpu for gradient in gradients]):
        return magnitudes(gradients).isfinite().tolist()
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.all_ranks(finite_flags(shards.parts_of(whole)), whole)
    if not gradients:
        return []
    values = stored_values(gradients)
    flags = torch.stack(list(map(wide_sum, values))).isfinite().tolist()
    return [
        flag or bool(v.isfinite().all()) for flag, v in zip(flags, values, strict=True)
    ]
