"""Float32 masters of half-precision weights, side by side in flat buffers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.pytorch.core import foreach
from lockstep.spec.mixed_precision import LARGEST

__all__ = ["FlatMasters", "add_penalty", "saturate_cast"]

ROW = 1 << 12
ALIGNMENT = 16
CHUNK = 1 << 24
"""About so many elements are clamped at once: what that needs is soon given back."""


def saturate_cast(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float32 to ``dtype``, clamped to its largest magnitude; NaN stays NaN."""
    largest = largest_of(dtype)
    return values.clamp(-largest, largest).to(dtype)


def largest_of(dtype: torch.dtype) -> float:
    """Return the largest magnitude that a half-precision dtype can hold."""
    return LARGEST[str(dtype).removeprefix("torch.")]


def add_penalty(gradient: Tensor | None, penalty: Tensor) -> Tensor:
    """Add the gradient of a penalty [d0, ...]; rows become dense, absent is zero."""
    if gradient is None:
        return penalty
    return (gradient.to_dense() if gradient.is_sparse else gradient) + penalty


class FlatMasters:
    """The masters of weights that share a device and a dtype.

    Weights and gradients have one float32 buffer each. The master and the gradient of
    a weight are views into them, so whole chunks are copied, measured and multiplied
    at once, and yet an optimizer sees a tensor a weight.

    Args:
        weights: the model's, in half precision.
        masters: float32 parameters of the same shapes; they become views and keep
            their values.
    """

    def __init__(self, weights: Sequence[Tensor], masters: Sequence[Tensor]) -> None:
        self.weights = list(weights)
        self.masters = list(masters)
        self.dtype = weights[0].dtype
        self.largest = largest_of(self.dtype)
        sizes = [weight.numel() for weight in weights]
        starts, size = lay_out(sizes)
        self.groups = in_chunks(sizes)
        places = zip(starts, weights, strict=True)
        self.places = [(start, weight.shape) for start, weight in places]
        self.values = torch.zeros(size, device=weights[0].device)
        self.value_views = self.views_of(self.values)
        self.gradients = torch.zeros_like(self.values)
        self.gradient_views = self.views_of(self.gradients)
        foreach.copy(self.value_views, [master.detach() for master in masters])
        for master, view in zip(masters, self.value_views, strict=True):
            master.data = view

    def views_of(self, buffer: Tensor) -> list[Tensor]:
        """Return the part of ``buffer`` that belongs to each weight, in its shape."""
        return [
            buffer[start : start + shape.numel()].view(shape)
            for start, shape in self.places
        ]

    def take(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """Copy dense gradients to float32 and return a view for each weight.

        Of a weight that has none here, the place holds zeros.
        """
        targets, sources = [], []
        for view, gradient in zip(self.gradient_views, gradients, strict=True):
            if gradient is None or gradient.is_sparse:
                view.zero_()
            else:
                targets.append(view)
                sources.append(gradient)
        foreach.copy(targets, sources)
        return self.gradient_views

    def square_sum(self) -> Tensor:
        """Return the sum of squares of all gradients: 0-d float64.

        Squares are added in float32 by rows of 4096, and the rows in float64.
        """
        norms = torch.linalg.vector_norm(self.gradients.view(-1, ROW), dim=1)
        return norms.double().square_().sum()

    def largest_gradient(self) -> Tensor:
        """Return the largest magnitude: 0-d."""
        low, high = self.gradients.aminmax()
        return torch.maximum(-low, high)

    def give_back(self) -> None:
        """Round the masters into the weights, clamped to what their dtype can hold."""
        weights = [weight.detach() for weight in self.weights]
        if self.fits():
            foreach.copy(weights, self.value_views)
            return
        for whose in self.groups:
            views = self.value_views[whose]
            foreach.copy(weights[whose], foreach.clamp(views, self.largest))

    def fits_weights(self) -> bool:
        """Say whether the weights still have the device and dtype of these buffers."""
        device, dtype = self.values.device, self.dtype
        return all(w.dtype is dtype and w.device == device for w in self.weights)

    def fits(self) -> bool:
        """Say whether no master must be clamped; not asked where it means waiting."""
        if not self.values.is_cpu:
            return False
        low, high = self.values.aminmax()
        return bool(-self.largest <= low and high <= self.largest)


def lay_out(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return where each tensor starts, and the size of the buffer: whole rows."""
    starts, at = [], 0
    for size in sizes:
        starts.append(at)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return starts, max(-(-at // ROW), 1) * ROW


def in_chunks(sizes: Sequence[int]) -> list[slice]:
    """Cut a list of tensors into runs of about CHUNK elements."""
    runs, first, found = [], 0, 0
    for position, size in enumerate(sizes):
        found += size
        if found >= CHUNK or position == len(sizes) - 1:
            runs.append(slice(first, position + 1))
            first, found = position + 1, 0
    return runs
