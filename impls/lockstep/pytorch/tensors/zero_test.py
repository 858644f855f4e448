"""Check whether gradients are all zero, for the multitask wrapper."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import partial
from itertools import compress
from operator import attrgetter

import torch
from torch import Tensor

from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.norms import magnitudes
from lockstep.pytorch.tensors.rows import sum_duplicates

__all__ = [
    "all_zero_flags",
    "by_device",
    "flush_subnormals",
    "is_all_zero",
    "largest_vanishing",
    "spread",
    "zero_flags",
]

# On the CPU, gradients of up to SMALL elements are read whole, those of one shape
# together. Larger ones are read in growing chunks until an element is not zero.
SMALL, GROWTH = 1 << 12, 1 << 4


def all_zero_flags(
    gradients: Sequence[Tensor], flush: bool = False, limit: float = 0.0
) -> list[bool]:
    """Return, for each gradient, whether it :func:`is_all_zero`, with few host syncs.

    Dense elements with |g| <= ``limit`` count as zero too. First one element of each
    gradient is read, with one transfer per device. If it is not zero, neither is the
    gradient. Only the other gradients are read. On a GPU that needs a second transfer
    for all of them together.
    """
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.all_ranks(all_zero_flags(shards.parts_of(whole), flush), whole)
    if flush:
        return [is_all_zero(gradient, flush) for gradient in gradients]
    suspected = by_device(gradients, partial(begin_with_zero, limit=limit))
    if not any(suspected):
        return suspected
    suspects = list(compress(gradients, suspected))
    read = partial(read_batch, limit=limit)
    verdicts = iter(in_groups(suspects, batch_of, read))
    return [suspect and next(verdicts) for suspect in suspected]


def zero_flags(
    gradients: Sequence[Tensor | None], flush: bool, limit: float = 0.0
) -> list[bool]:
    """Return :func:`all_zero_flags`, with False for None."""
    present = [gradient for gradient in gradients if gradient is not None]
    zero = all_zero_flags(present, flush, limit)
    if len(zero) == len(gradients):
        return zero
    return spread(zero, [gradient is None for gradient in gradients])


def spread(zero: Iterable[bool], absent: Iterable[bool]) -> list[bool]:
    """Return flags of all parameters, from flags of those that are not absent."""
    flags = iter(zero)
    return [not gone and next(flags) for gone in absent]


def largest_vanishing(divisor: float) -> float:
    """Return the largest |g| that float32 rounds to zero in g / divisor.

    ``divisor`` is a finite float32 number. Below half of the smallest float32, 2^-149,
    and also at this half, a quotient becomes zero.
    """
    return math.floor(divisor / 2) * 2.0**-149


def is_all_zero(gradient: Tensor, flush: bool = False) -> bool:
    """Whether all elements of ``gradient`` are zero, with duplicate rows summed.

    With ``flush`` float32 subnormals count as zero; see the reference.
    """
    values = flat_values(gradient)
    return are_within(flush_subnormals(values) if flush else values, 0.0)


def are_within(values: Tensor, limit: float) -> bool:
    """Whether |v| <= limit for all elements of a real tensor [n]."""
    start, size = 0, SMALL
    while start < values.numel():
        low, high = values[start : start + size].aminmax()
        # In this form, NaN is not zero either.
        if not (low.item() >= -limit and high.item() <= limit):
            return False
        start, size = start + size, size * GROWTH
    return True


def flush_subnormals(values: Tensor) -> Tensor:
    """Set subnormals to zero, except in float16.

    The processor mode of the original did the same.
    """
    if values.dtype == torch.float16:
        return values
    smallest = torch.finfo(values.dtype).smallest_normal
    return torch.where(values.abs() < smallest, 0, values)


def begin_with_zero(gradients: Sequence[Tensor], limit: float) -> list[bool]:
    """Return, for each gradient, whether one element is zero; True for no element.

    For a sparse gradient it is True too, because it is read later.
    """
    if not any([g.is_sparse for g in gradients]):
        shapes = {g.shape for g in gradients}
        if all([shape.numel() for shape in shapes]):
            return have_zero_heads(gradients, shapes, limit)
    dense = [g for g in gradients if not g.is_sparse and g.numel()]
    flags = iter(have_zero_heads(dense, {g.shape for g in dense}, limit))
    return [g.is_sparse or not g.numel() or next(flags) for g in gradients]


def have_zero_heads(
    gradients: Sequence[Tensor], shapes: Collection[torch.Size], limit: float
) -> list[bool]:
    """Return, for each gradient, whether its first element is zero.

    No gradient may be empty. ``shapes``: each shape that a gradient has.
    """
    if not gradients:
        return []
    first = gradients[0]
    if len(shapes) == 1 and first.is_cpu and first.numel() <= SMALL:
        # Copying small gradients of one shape takes less time than creating a view of
        # one element of each.
        heads = foreach.joined(gradients, torch.stack).reshape(len(gradients), -1)[:, 0]
    else:
        heads = foreach.joined([g.as_strided((1,), (1,)) for g in gradients])
    return [abs(head) <= limit for head in heads.tolist()]


def read_batch(gradients: Sequence[Tensor], limit: float) -> list[bool]:
    """Return, for each gradient of one :func:`batch_of`, whether all elements are zero.

    On a GPU this needs one transfer, and few launches for all of them.
    """
    if not gradients[0].is_cpu:
        return (magnitudes(gradients) <= limit).tolist()
    if len(gradients) == 1 or batch_of(gradients[0]) is None:
        return [are_within(flat_values(gradient), limit) for gradient in gradients]
    rows = foreach.joined(gradients, torch.stack).reshape(len(gradients), -1)
    return ((rows.amin(1) >= -limit) & (rows.amax(1) <= limit)).tolist()


def batch_of(gradient: Tensor) -> Hashable:
    """Return the key of gradients that :func:`read_batch` reads together.

    On the CPU, None is the key of gradients that are read one by one.
    """
    if not gradient.is_cpu:
        return gradient.device
    alone = gradient.is_sparse or gradient.is_complex()
    if alone or not 0 < gradient.numel() <= SMALL:
        return None
    return gradient.shape, gradient.dtype


def by_device(
    gradients: Sequence[Tensor], ask: Callable[[Sequence[Tensor]], list[bool]]
) -> list[bool]:
    """Return an answer for each gradient; ``ask`` gets those of one device together."""
    # The usual case comes first, because comparing many devices is slow.
    if gradients and all([gradient.is_cpu for gradient in gradients]):
        return ask(gradients)
    return in_groups(gradients, attrgetter("device"), ask)


def in_groups(
    gradients: Sequence[Tensor],
    key: Callable[[Tensor], Hashable],
    ask: Callable[[Sequence[Tensor]], list[bool]],
) -> list[bool]:
    """Return an answer for each gradient; ``ask`` gets those of one key together."""
    keys = list(map(key, gradients))
    if keys and all([one == keys[0] for one in keys]):
        return ask(gradients)
    groups: dict[Hashable, list[int]] = {}
    for k, one in enumerate(keys):
        groups.setdefault(one, []).append(k)
    flags = [False] * len(gradients)
    for positions in groups.values():
        answers = ask([gradients[k] for k in positions])
        for k, answer in zip(positions, answers, strict=True):
            flags[k] = answer
    return flags


def flat_values(gradient: Tensor) -> Tensor:
    """Return the stored elements: [n].

    Duplicate rows are summed. A complex number is a pair of real ones.
    """
    values = sum_duplicates(gradient).values if gradient.is_sparse else gradient
    if values.is_complex():
        # Autograd's conjugates may be lazy, and such a tensor has no real view.
        values = torch.view_as_real(values.resolve_conj())
    return values.reshape(-1)
