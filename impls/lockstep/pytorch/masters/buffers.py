"""Float32 masters of half-precision weights, side by side in flat buffers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import compress

import torch
from torch import Tensor

from lockstep.messages import pytorch as words
from lockstep.messages.masters.mixed_precision import LARGEST
from lockstep.pytorch.tensors import foreach, shards

__all__ = [
    "FlatMasters",
    "add_penalty",
    "addresses_of",
    "marks_of",
    "require_own_memory",
    "same_marks",
    "saturating_cast",
]

Marks = tuple[list[int], list[int]]
ROW = 1 << 12
ALIGNMENT = 16
CHUNK = 1 << 20
"""About so many elements are given back at once."""


def saturating_cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float32 values to ``dtype``, clamped to its largest magnitude."""
    largest = largest_of(dtype)
    return values.clamp(-largest, largest).to(dtype)


def largest_of(dtype: torch.dtype) -> float:
    """Return the largest magnitude that a half-precision dtype can hold."""
    return LARGEST[str(dtype).removeprefix("torch.")]


def add_penalty(gradient: Tensor | None, penalty: Tensor) -> Tensor:
    """Add the gradient of a penalty to one that may be absent or sparse."""
    if gradient is None:
        return penalty
    return (gradient.to_dense() if gradient.is_sparse else gradient) + penalty


def marks_of(tensors: Collection[Tensor]) -> Marks:
    """Return the version counters and the addresses of tensors.

    ``tensor.data = values`` changes the address, and an ordinary write changes the
    version. A write into ``tensor.data`` changes neither.
    """
    versions = [tensor._version for tensor in tensors]
    if not shards.are_among(tensors):
        return versions, list(map(Tensor.data_ptr, tensors))
    # A write into a DTensor changes its version, and not that of its part.
    parts = shards.parts_of(tensors)
    both = zip(versions, parts, strict=True)
    versions = [version + part._version for version, part in both]
    return versions, addresses_of(parts)


def same_marks(before: Marks, tensors: Collection[Tensor]) -> list[bool]:
    """Return for each tensor whether its version and address are those of before."""
    rows = zip(
        zip(*before, strict=True), zip(*marks_of(tensors), strict=True), strict=True
    )
    return [then == now for then, now in rows]


def addresses_of(tensors: Iterable[Tensor]) -> list[int]:
    """Return the address of each tensor, or of this rank's part of it."""
    return list(map(Tensor.data_ptr, shards.parts_of(tensors)))


def require_own_memory(weights: Iterable[Tensor]) -> None:
    """Raise if two weights begin at the same place in memory.

    The masters of both would be rounded into it, so one update would be lost.
    """
    stored = [w for w in weights if w.numel() and not w.is_meta]
    places = set()
    for weight, address in zip(stored, addresses_of(stored), strict=True):
        if address and (weight.device, address) in places:
            raise words.SHARE_MEMORY.error(shape=list(weight.shape))
        places.add((weight.device, address))


class FlatMasters:
    """The masters of weights that share a device and a dtype.

    One float32 buffer has all masters, and another has all gradients. The master and
    the gradient of each weight are views into them. So one operation can take the norm
    of a buffer or divide it, but the optimizer still sees one tensor for each weight.
    For DTensors, each rank has its own part here.

    Args:
        weights: the half-precision weights of the model.
        masters: float32 parameters of the same shapes. They become views of the buffer
            and keep their values.
    """

    def __init__(self, weights: Sequence[Tensor], masters: Sequence[Tensor]) -> None:
        self.weights = list(weights)
        self.masters = list(masters)
        self.dtype = weights[0].dtype
        self.is_sharded = shards.are_among(weights)
        self.largest = largest_of(self.dtype)
        parts = shards.parts_of(weights)
        starts, size = lay_out([part.numel() for part in parts])
        self.chunks = in_chunks(starts, size)
        places = zip(starts, parts, strict=True)
        self.places = [(start, part.shape) for start, part in places]
        device = weights[0].device
        self.values = torch.zeros(size, dtype=torch.float32, device=device)
        self.value_views = self.views_of(self.values)
        self.gradients = torch.zeros_like(self.values)
        self.gradient_views = self.views_of(self.gradients)
        self.master_gradients = shards.laid_out(self.weights, self.gradient_views)
        before = shards.parts_of(masters)
        foreach.copy(self.value_views, [master.detach() for master in before])
        for master, view in zip(masters, self.value_views, strict=True):
            shards.replace_part(master, view)

    def views_of(self, buffer: Tensor) -> list[Tensor]:
        """Return a view of ``buffer`` for each weight, in the weight's shape."""
        return [
            buffer[start : start + shape.numel()].view(shape)
            for start, shape in self.places
        ]

    def take(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """Copy dense gradients to float32 and return a view for each weight.

        A weight without a dense gradient gets zeros. For a DTensor, the view is that of
        this rank's part.
        """
        if self.is_sharded:
            gradients = shards.parts_of(shards.split_alike(gradients, self.weights))
        views = self.gradient_views
        dense = [g is not None and not g.is_sparse for g in gradients]
        if not all(dense):
            for view, is_there in zip(views, dense, strict=True):
                if not is_there:
                    view.zero_()
            views = list(compress(views, dense))
            gradients = list(compress(gradients, dense))
        foreach.copy(views, gradients)
        return self.master_gradients

    @property
    def pieces(self) -> list[Tensor]:
        """The gradients as few tensors: the buffer, or its DTensors."""
        return self.master_gradients if self.is_sharded else [self.gradients]

    @torch.no_grad()
    def write_weights(self) -> None:
        """Round the masters into the weights, clamped to the range of their dtype.

        This works on one chunk at a time, so that it is still in the cache when it is
        copied.
        """
        for whose, part in self.chunks:
            views = self.value_views[whose]
            if not self.fits(self.values[part]):
                views = foreach.clamp(views, self.largest)
            foreach.copy(shards.parts_of(self.weights[whose]), views)

    def fits_weights(self) -> bool:
        """Whether the weights still have the device and dtype of these buffers."""
        if {weight.dtype for weight in self.weights} != {self.dtype}:
            return False
        if self.values.is_cpu:
            return all([weight.is_cpu for weight in self.weights])
        return {weight.device for weight in self.weights} == {self.values.device}

    def fits(self, values: Tensor) -> bool:
        """Whether no value must be clamped. False on a GPU, which would need a sync."""
        if not (values.is_cpu and values.numel()):
            return False
        # No magnitude is larger than the norm, which takes half as long to compute.
        if torch.linalg.vector_norm(values).item() < self.largest / 2:
            return True
        low, high = values.aminmax()
        return -self.largest <= low.item() and high.item() <= self.largest


def lay_out(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return the offset of each tensor, and the buffer's size in whole rows."""
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return starts, max(-(-at // ROW), 1) * ROW


def in_chunks(starts: Sequence[int], size: int) -> list[tuple[slice, slice]]:
    """Return runs of tensors with about CHUNK elements: positions and places."""
    runs, first = [], 0
    for position in range(len(starts)):
        last = position + 1 == len(starts)
        end = size if last else starts[position + 1]
        if last or end - starts[first] >= CHUNK:
            runs.append((slice(first, position + 1), slice(starts[first], end)))
            first = position + 1
    return runs
