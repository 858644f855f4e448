"""The gradients of one step, brought to the masters: in flat buffers, and loose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress

import torch
from torch import Tensor

from lockstep.pytorch.core import foreach
from lockstep.pytorch.core.clip_gradients import with_values
from lockstep.pytorch.core.finite import finite_flags
from lockstep.pytorch.core.masters import FlatMasters, add_penalty
from lockstep.pytorch.core.norms import accurate_norm
from lockstep.pytorch.regularizer import Regularizer, penalty_gradient

__all__ = ["MasterGradients", "widened"]


class MasterGradients:
    """What the masters have in ``.grad`` for one step.

    Args:
        parameters: masters, and parameters that are their own.
        flats: of the masters whose gradients come from the model; empty if all
            gradients were given.
    """

    def __init__(
        self, parameters: Iterable[Tensor], flats: Sequence[FlatMasters]
    ) -> None:
        self.flats = flats
        own = [p for p in parameters if p.grad is not None]
        in_buffer: list[Tensor] = []
        sparse: list[Tensor] = []
        for flat in flats:
            gradients = [weight.grad for weight in flat.weights]
            views = flat.take(gradients)
            for k, gradient in enumerate(gradients):
                if gradient is None:
                    continue
                master = flat.masters[k]
                is_sparse = gradient.is_sparse
                master.grad = widened(gradient) if is_sparse else views[k]
                (sparse if is_sparse else in_buffer).append(master)
        self.borrowed = [*in_buffer, *sparse]
        taken = set(map(id, self.borrowed))
        self.loose = [*sparse, *(p for p in own if id(p) not in taken)]
        self.present = [*in_buffer, *self.loose]

    def penalize(
        self,
        regularizers: Mapping[Tensor, Regularizer],
        masters: Mapping[Tensor, Tensor],
        scale: float | Tensor,
    ) -> None:
        """Add scale x the gradient of its penalty to each regularized master's."""
        for flat in self.flats:
            for k, weight in enumerate(flat.weights):
                if weight in regularizers:
                    master, view = masters[weight], flat.gradient_views[k]
                    penalty = penalty_gradient(regularizers[weight], master) * scale
                    if master.grad is None:
                        self.present.append(master)
                        self.borrowed.append(master)
                    elif master in self.loose:
                        self.loose = [p for p in self.loose if p is not master]
                    view.copy_(add_penalty(master.grad, penalty))
                    master.grad = view

    def square_sum(self) -> Tensor:
        """Return the sum of squares: 0-d float64."""
        sums = [flat.square_sum() for flat in self.flats]
        if self.loose:
            sums.append(accurate_norm([p.grad for p in self.loose]).double().square())
        return torch.stack([s.to(sums[0].device) for s in sums]).sum()

    def largest(self, least: float) -> Tensor:
        """Return the largest magnitude, at least ``least``, where all is finite."""
        found = [flat.largest_gradient() for flat in self.flats]
        for parameter in self.loose:
            values = stored(parameter.grad)
            if values.numel():
                low, high = values.aminmax()
                found.append(torch.maximum(-low, high).float())
        device = self.present[0].device
        found.append(torch.full((), least, device=device))
        return torch.stack([f.to(device) for f in found]).amax()

    def exact_square_sum(self) -> Tensor:
        """Return the sum of squares, each taken in float64."""
        squares = [stored(p.grad).double().square().sum() for p in self.present]
        return torch.stack([s.to(squares[0].device) for s in squares]).sum()

    def nonfinite(self) -> list[Tensor]:
        """Return those whose gradient is not finite. One host sync a device."""
        flags = finite_flags([p.grad for p in self.present])
        return list(compress(self.present, [not flag for flag in flags]))

    def multiply(self, factor: float) -> None:
        """Multiply by a float32 number: buffers in place, others by new tensors."""
        if factor == 1:
            return
        for flat in self.flats:
            flat.gradients.mul_(factor)
        if self.loose:
            values = [stored(p.grad) for p in self.loose]
            products = foreach.scale(values, torch.tensor(factor))
            for parameter, product in zip(self.loose, products, strict=True):
                parameter.grad = with_values(parameter.grad, product)

    def release(self) -> None:
        """Take back the gradients that came from the model."""
        for master in self.borrowed:
            master.grad = None


def stored(gradient: Tensor) -> Tensor:
    """Return the stored elements of a gradient, duplicate rows as they are."""
    return gradient._values() if gradient.is_sparse else gradient


def widened(gradient: Tensor | None) -> Tensor | None:
    """Return a gradient in float32; None stays None."""
    if gradient is None or gradient.dtype == torch.float32:
        return gradient
    return with_values(gradient, stored(gradient).float())
