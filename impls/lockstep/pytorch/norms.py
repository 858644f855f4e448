"""Norms and finite checks of gradients in one read of each, and rows of sparse ones.

They are accurate for large gradients too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lockstep.errors import DtypeError
from lockstep.pytorch import foreach, shards

# Up to this size, the error of a float32 sum is below 1e-7. It is up to 2e-5 if all
# elements are equal, because then every addition rounds the same way.
BLOCK = 1 << 14
# Below this size, copying the elements takes less time than a launch.
SMALL = 1 << 12
# If so many tensors of at most this size have one shape, they are copied, too.
MANY, MEDIUM = 8, 1 << 13
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
    """Return :func:`total_norm` in float32; infinity if its square exceeds float32.

    With an infinite norm, the clipping function does what the original did, on every
    device. ``norm``: the total norm, if it is known.
    """
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
    Float64 elements must also be below 1e154. The result is on the device of the first
    gradient. Nothing waits for a GPU unless a gradient is sparse.

    A GPU squares and adds in float64, because reading the elements takes longer than
    that. On the CPU float64 would take several times as long. So the CPU adds rows of
    16384 elements in float32, and the norms of the rows in float64. (One float32 sum
    over 100M elements is 1 % off.) If squares may have left the range of float32, it
    computes the norm again in float64. Parts of DTensors are added in float64, too.
    """
    if not gradients:
        return torch.zeros((), dtype=torch.float64, device="cpu")
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
    """Return the norm of each gradient, computed in float64: [n]."""
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.combined_norms(tensor_norms(shards.parts_of(whole)), whole)
    norms = foreach.norms(stored_values(gradients))
    return together(norms, gradients[0].device)


@torch.no_grad()
def norm_of_each(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each tensor: [n], float32, as accurate as :func:`total_norm`.

    A norm is infinite if float32 cannot hold its square. It may be 0 if the squares of
    all elements are too small for float32. Nothing waits for a GPU unless a tensor is
    sparse. On the CPU a large tensor is added in rows, as in :func:`total_norm`.
    """
    if shards.are_among(tensors):
        whole = shards.added_up(tensors)
        norm = shards.combined_norms(norm_of_each(shards.parts_of(whole)), whole)
    else:
        norm = norms_by_shape(stored_values(tensors), tensors[0].device)
    overflows = norm.square() > LARGEST
    return torch.where(overflows, torch.inf, norm).float()


def norms_by_shape(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the norm of each tensor on ``device``: [n], float64."""
    groups, others = many_of_one_shape(tensors)
    norms = [norms_of_one_shape([tensors[k] for k in group]) for group in groups]
    if others:
        rest = foreach.part_by_part([tensors[k] for k in others], norms_alike)
        norms.append(together(rest, device).double())
    if len(norms) == 1:
        return norms[0]
    places = [k for group in groups for k in group] + others
    in_order = torch.empty(len(tensors), dtype=torch.float64, device=device)
    in_order[places] = torch.cat(norms)
    return in_order


def many_of_one_shape(tensors: Sequence[Tensor]) -> tuple[list[list[int]], list[int]]:
    """Return the positions of small tensors of which many have one shape, and others.

    Positions of one shape and dtype are in one list. On a GPU, there are only others.
    """
    everything = list(range(len(tensors)))
    if len(tensors) < MANY or not all([tensor.is_cpu for tensor in tensors]):
        return [], everything
    shapes: dict[Any, list[int]] = defaultdict(list)
    for position, tensor in enumerate(tensors):
        shapes[tensor.shape, tensor.dtype].append(position)
    groups = [
        positions
        for positions in shapes.values()
        if len(positions) >= MANY and tensors[positions[0]].numel() <= MEDIUM
    ]
    among = {position for group in groups for position in group}
    return groups, [k for k in everything if k not in among]


def norms_of_one_shape(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of each tensor: [n], float64; the bits of :func:`norms_alike`."""
    size, norms = tensors[0].numel(), []
    for run in foreach.runs_alike(tensors, range(len(tensors))):
        some = [tensors[k] for k in run]
        rows = foreach.joined(some, torch.stack).reshape(len(run), size)
        norms.append(norms_of_rows(rows))
    return torch.cat(norms).double()


def norms_alike(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the norms of tensors that share a device and a dtype: 0-d each."""
    # On a GPU reading takes longer than float64 arithmetic. On the CPU it does not.
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
    """Return the largest |g| of each gradient: [n], float64.

    It is NaN if an element is NaN, and for a DTensor infinity instead. An empty
    gradient has 0. Nothing waits for a GPU unless a gradient is sparse.
    """
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.largest(magnitudes(shards.parts_of(whole)), whole)
    values = [v if v.numel() else v.new_zeros(1) for v in stored_values(gradients)]
    return together(foreach.norms(values, torch.inf), gradients[0].device)


def together(numbers: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return 0-d tensors from any devices as one tensor on ``device``: [n]."""
    there = [n if n.device == device else foreach.moved(n, device) for n in numbers]
    return foreach.joined(there, torch.stack)


def norm_on_cpu(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of all elements: 0-d, float64."""
    norm = torch.linalg.vector_norm(torch.cat(norms_by_rows(tensors)).double())
    if LOWEST < norm.item() < HIGHEST or not (norm or any(t.any() for t in tensors)):
        return norm
    return torch.linalg.vector_norm(torch.stack(foreach.norms(tensors)))


def norms_by_rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the norms of parts that together have each element once: [n] each.

    A part is a row of a large tensor, a medium tensor, or a row of several small
    tensors that are copied into one.
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
        norms.append(norms_by_shape(medium, medium[0].device))
    for run in foreach.runs(small):
        norms += norms_in_order(foreach.end_to_end([small[k] for k in run]))
    return norms


def norms_in_order(flat: Tensor) -> list[Tensor]:
    """Return the norms of rows of BLOCK elements, and of the remainder: [n] each."""
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


# -- finite checks ---------------------------------------------------------------------


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

    Duplicate rows are summed first. One host sync per device.
    """
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.all_ranks(finite_flags(shards.parts_of(whole)), whole)
    if all([gradient.is_cpu for gradient in gradients]):
        return all_finite(gradients)
    flags: dict[int, bool] = {}
    for device in {gradient.device for gradient in gradients}:
        there = [k for k, g in enumerate(gradients) if g.device == device]
        answers = all_finite([gradients[k] for k in there])
        flags.update(zip(there, answers, strict=True))
    return [flags[k] for k in range(len(gradients))]


def all_finite(gradients: Sequence[Tensor]) -> list[bool]:
    """Return, for each gradient, whether it is finite; all are on one device.

    On the CPU the sums are checked first. If a sum is finite, so are all elements. If
    not, the elements are checked, because finite elements may have an infinite sum.
    """
    if not gradients:
        return []
    if not gradients[0].is_cpu:
        return magnitudes(gradients).isfinite().tolist()
    values = stored_values(gradients)
    flags = torch.stack(list(map(wide_sum, values))).isfinite().tolist()
    return [
        flag or bool(v.isfinite().all()) for flag, v in zip(flags, values, strict=True)
    ]
