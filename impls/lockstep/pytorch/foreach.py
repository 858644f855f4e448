"""Operations on lists of tensors in a few kernel launches, and their rounding.

The names of ``torch._foreach_*`` begin with an underscore, because torch 2.13 has no
public ones. So only this module uses them. A list may mix devices and dtypes. It is
split into parts that one launch can process.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from ctypes import c_float
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from lockstep.pytorch import shards

# Made once, because a new tensor takes a microsecond in every step.
ONE = torch.ones((), dtype=torch.float32, device="cpu")

CPU_RUN, RUN = 1 << 16, 1 << 25
"""About how many elements one launch processes, on the CPU and on other devices."""

ONE_THREAD, MANY_THREADS = 1 << 15, 8
"""Up to ``ONE_THREAD`` elements torch uses one thread. In float64, it needs
``MANY_THREADS`` threads to be as fast as NumPy."""


# -- numbers ---------------------------------------------------------------------------


def rounded(number: float, dtype: torch.dtype) -> float:
    """Round a number to ``dtype``, once.

    torch would round it to float32 and then to float16. With two roundings one number
    in ten thousand is 1 ULP off. For float32 a C number is used, because it is ten
    times as fast as a tensor.
    """
    if dtype == torch.float32:
        return c_float(number).value
    if dtype == torch.float64:
        return float(number)
    if dtype == torch.float16:
        return float(np.float16(number))
    return torch.tensor(number, dtype=dtype, device="cpu").item()


def reciprocal(number: float) -> float:
    """Return 1 / x of a float32 number, rounded to float32."""
    return rounded(quotient(1.0, number), torch.float32)


def quotient(dividend: float, divisor: float) -> float:
    """Return a / b as tensors divide: by 0 it is infinite, and 0 / 0 is NaN."""
    if not divisor:
        return dividend * math.copysign(math.inf, divisor)
    return dividend / divisor


def number_like(number: Tensor | float, tensor: Tensor) -> Tensor:
    """Return a 0-d tensor like ``tensor``, written on its device without waiting."""
    if isinstance(number, Tensor):
        number = number.to(tensor.dtype)
        if tensor.is_cpu or not number.is_cpu:
            return moved(number, tensor.device)
        number = number.item()
    return torch.full((), number, dtype=tensor.dtype, device=tensor.device)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on ``device``; only a copy to the CPU waits."""
    if tensor.device == device:
        return tensor
    return tensor.to(device, non_blocking=device.type != "cpu")


# -- elementwise -----------------------------------------------------------------------


# Lists of one length, which are not empty; the tensors of a pair share a shape. Those
# with an underscore in torch's name change the first list. ``copy`` also casts.
add, subtract_in_place = torch._foreach_add_, torch._foreach_sub_
multiply, multiply_in_place = torch._foreach_mul, torch._foreach_mul_
subtract = torch._foreach_sub
copy, zero = torch._foreach_copy_, torch._foreach_zero_


def are_finite(tensors: Sequence[Tensor], factor: float = 1.0) -> bool:
    """Whether all elements of contiguous tensors on the CPU are finite, in one launch.

    The same launch, torch's kernel of ``GradScaler``, multiplies them by ``factor``. By
    1, they keep their bits, and the tensors their versions.
    """
    nonfinite, number = torch.zeros_like(ONE), ONE if factor == 1 else ONE * factor
    torch._amp_foreach_non_finite_check_and_unscale_(tensors, nonfinite, number)
    return not nonfinite


def end_to_end(tensors: Sequence[Tensor]) -> Tensor:
    """Return all elements in one flat tensor: [n]. Vectors need no view of each."""
    if tensors[0].itemsize >= 4 and all([t.dim() == 1 for t in tensors]):
        return torch.cat(tensors)  # In half precision autocast may refuse this.
    return torch._utils._flatten_dense_tensors(tensors)


def copy_parts(targets: Sequence[Tensor], flat: Tensor) -> None:
    """Copy the elements of ``flat``, made by :func:`end_to_end`, into the targets."""
    copy(targets, torch._utils._unflatten_dense_tensors(flat, targets))


def plus_number(tensors: Sequence[Tensor], number: Tensor | float) -> list[Tensor]:
    """Return each tensor plus a number. The tensors share a device and a dtype."""
    return list(torch._foreach_add(tensors, number_like(number, tensors[0])))


def scale(tensors: Sequence[Tensor], factor: Tensor | float) -> list[Tensor]:
    """Return each tensor times a number, which is cast to its dtype first."""
    return part_by_part(tensors, lambda part: scale_alike(part, factor))


def scale_alike(tensors: Sequence[Tensor], factor: Tensor | float) -> list[Tensor]:
    """Do as :func:`scale`, with tensors that share a device and a dtype."""
    return list(torch._foreach_mul(tensors, number_like(factor, tensors[0])))


def scale_in_place(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    """Multiply each tensor by a number, which is cast to its dtype first."""
    for positions in alike(tensors):
        scale_alike_in_place([tensors[k] for k in positions], factor)


def scale_alike_in_place(tensors: Sequence[Tensor], factor: Tensor | float) -> None:
    """Do as :func:`scale_in_place`, with tensors that share a device and a dtype."""
    torch._foreach_mul_(tensors, number_like(factor, tensors[0]))


def times(gradients: Sequence[Tensor], factor: float | Tensor) -> list[Tensor]:
    """Return gradients times a float32 factor, rounded once to their own dtypes."""
    if shards.are_among(gradients):
        products = times(shards.parts_of(gradients), factor)
        return shards.laid_out(gradients, products)
    values = [g._values() if g.is_sparse else g for g in gradients]
    wide = [v.float() if v.itemsize < 4 else v for v in values]
    products = scale(wide, factor)
    if any([v.itemsize < 4 for v in values]):
        products = [p.to(v.dtype) for p, v in zip(products, values, strict=True)]
    return list(map(with_values, gradients, products))


def with_values(gradient: Tensor, values: Tensor) -> Tensor:
    """Return ``values``, as the rows of a sparse tensor if ``gradient`` is one."""
    if not gradient.is_sparse:
        return values
    return torch.sparse_coo_tensor(
        gradient._indices(),
        values,
        gradient.shape,
        is_coalesced=gradient.is_coalesced(),
        check_invariants=False,
    )


# -- several operations in one launch --------------------------------------------------
#
# The bits are those of separate operations. On the CPU, writing and reading the
# results between two launches costs more than the arithmetic.


def add_scaled(
    targets: Sequence[Tensor], terms: Sequence[Tensor], factor: Tensor | float
) -> None:
    """Add terms times a number: t += x factor, rounded twice; the terms are alike."""
    if rounds_each_operation(terms[0]):
        # Computes 1 (x factor) + t. The product x factor is rounded by itself.
        ones = [terms[0].new_ones(())] * len(terms)
        torch._foreach_addcmul_(targets, terms, ones, value=float(factor))
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
        torch._foreach_addcdiv_(targets, terms, divisors, value=float(factor))
    else:
        steps = scale_alike(terms, factor)
        torch._foreach_div_(steps, divisors)
        torch._foreach_add_(targets, steps)


def blend(
    targets: Sequence[Tensor], values: Sequence[Tensor], share: Tensor | float
) -> None:
    """Move tensors of one device and dtype: t += (x - t) share, rounded three times."""
    add_scaled(targets, torch._foreach_sub(values, targets), share)


def rounds_each_operation(tensor: Tensor) -> bool:
    """Whether a fused operation rounds after each step, as separate ones do."""
    # A GPU multiplies and adds with one rounding, half precision rounds at the end.
    return tensor.is_cpu and tensor.itemsize >= 4


# -- roots -----------------------------------------------------------------------------


def sqrt(values: Tensor) -> Tensor:
    """Return sqrt(x), correctly rounded to the dtype of ``values``.

    On the CPU torch 2.13 is 1 ULP off for a fifth of all float32 values. NumPy rounds
    correctly but uses one thread. If torch has many threads, the root of a large tensor
    is computed in float64 and rounded once, which is exact. On one thread that takes
    seven times as long.
    """
    if not values.is_cpu:
        return values.sqrt()
    many = values.numel() > ONE_THREAD and torch.get_num_threads() >= MANY_THREADS
    if (many and values.itemsize < 8) or values.dtype == torch.bfloat16:
        return values.double().sqrt().to(values.dtype)
    roots = torch.empty_like(values)
    with np.errstate(invalid="ignore"):
        np.sqrt(values.detach().numpy(), out=roots.numpy())
    return roots


def rsqrt(values: Tensor) -> Tensor:
    """Return 1 / sqrt(x), rounded after each of the two operations."""
    if values.is_cpu and values.itemsize >= 4:
        return values.rsqrt()
    return sqrt(values).reciprocal_()


def roots(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return square roots of tensors of one device and dtype, see :func:`sqrt`."""
    if not tensors[0].is_cpu:
        return list(torch._foreach_sqrt(tensors))
    if len(tensors) == 1:
        return [sqrt(tensors[0])]
    flat = sqrt(torch._utils._flatten_dense_tensors(tensors))
    return list(torch._utils._unflatten_dense_tensors(flat, tensors))


def roots_plus(tensors: Sequence[Tensor], number: Tensor | float) -> list[Tensor]:
    """Return :func:`roots` plus a number."""
    if not tensors[0].is_cpu or len(tensors) == 1:
        return plus_number(roots(tensors), number)
    flat = sqrt(torch._utils._flatten_dense_tensors(tensors))
    flat += number_like(number, flat)
    return list(torch._utils._unflatten_dense_tensors(flat, tensors))


def reciprocal_roots(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return 1 / sqrt(x) of each tensor, rounded as by :func:`rsqrt`."""
    if rounds_each_operation(tensors[0]):
        return list(torch._foreach_rsqrt(tensors))
    reciprocals = roots(tensors)
    torch._foreach_reciprocal_(reciprocals)
    return reciprocals


# -- layout ----------------------------------------------------------------------------


def share_elements(tensors: Sequence[Tensor]) -> bool:
    """Whether two tensors overlap, or one is expanded, as autograd may return them."""
    parts = shards.parts_of(tensors)
    values = [t._values() if t.is_sparse else t for t in parts]
    if any([0 in v.stride() for v in values if not v.is_contiguous()]):
        return True
    if begin_apart(values):
        return False
    spans = sorted([(v.data_ptr(), v.nbytes) for v in values if v.numel()])
    return any([start + size > after for (start, size), (after, _) in pairwise(spans)])


def begin_apart(tensors: Sequence[Tensor]) -> bool:
    """Whether each tensor begins at the start of a storage of its own."""
    starts = set(map(Tensor.data_ptr, tensors))
    return len(starts) == len(tensors) and not any(map(Tensor.storage_offset, tensors))


def part_by_part(
    tensors: Sequence[Tensor], operation: Callable[[Sequence[Tensor]], Sequence[Tensor]]
) -> list[Tensor]:
    """Call an operation once for each device and dtype; return all its results."""
    parts = alike(tensors)
    if len(parts) == 1:
        return list(operation(tensors))
    by_place: dict[int, Tensor] = {}
    for positions in parts:
        results = operation([tensors[k] for k in positions])
        by_place.update(zip(positions, results, strict=True))
    return [by_place[k] for k in range(len(tensors))]


def alike(tensors: Sequence[Tensor]) -> list[list[int]]:
    """Group the positions of tensors by device and dtype."""
    # The usual case comes first, because comparing or hashing many devices is slow.
    if len({t.dtype for t in tensors}) == 1 and all([t.is_cpu for t in tensors]):
        return [list(range(len(tensors)))]
    kinds = [(tensor.device, tensor.dtype) for tensor in tensors]
    if kinds and all([kind == kinds[0] for kind in kinds]):
        return [list(range(len(kinds)))]
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = defaultdict(list)
    for position, kind in enumerate(kinds):
        groups[kind].append(position)
    return list(groups.values())


def runs(tensors: Sequence[Tensor], on_cpu: int = CPU_RUN) -> list[list[int]]:
    """Group positions as :func:`alike`, and split the groups as :func:`runs_alike`."""
    return [
        run for group in alike(tensors) for run in runs_alike(tensors, group, on_cpu)
    ]


def runs_alike(
    tensors: Sequence[Tensor], positions: Sequence[int], on_cpu: int = CPU_RUN
) -> list[list[int]]:
    """Split positions of tensors alike into runs that fit into the cache."""
    longest = on_cpu if tensors[positions[0]].is_cpu else RUN
    sizes = [tensors[position].numel() for position in positions]
    if sum(sizes) <= longest:
        return [list(positions)]
    all_runs: list[list[int]] = [[]]
    size = 0
    for position, elements in zip(positions, sizes, strict=True):
        if all_runs[-1] and size + elements > longest:
            all_runs.append([])
            size = 0
        all_runs[-1].append(position)
        size += elements
    return all_runs
