"""The gradients of one step at the masters, in flat buffers or outside of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from lockstep.pytorch.foreach import with_values
from lockstep.pytorch.masters.buffers import FlatMasters, add_penalty
from lockstep.pytorch.masters.regularizer import Regularizer, penalty_gradient
from lockstep.pytorch.tensors import shards
from lockstep.pytorch.tensors.norms import magnitudes

__all__ = ["MasterGradients", "fill_buffers", "in_float32", "stored"]


class MasterGradients:
    """The gradients that the masters have in ``.grad`` for one step.

    Args:
        parameters: the masters, and the parameters that have none.
        flats: the buffers of the masters whose gradients come from the model. Empty if
            the caller has set all gradients.
    """

    @torch.no_grad()
    def __init__(
        self, parameters: Iterable[Tensor], flats: Sequence[FlatMasters]
    ) -> None:
        self.flats = flats
        self.borrowed: list[Tensor] = []
        own = [p for p in parameters if p.grad is not None]
        try:
            sparse = self._bring(flats)
        except BaseException:
            self.release()
            raise
        taken = set(map(id, self.borrowed)) if own else set()
        self.loose = [*sparse, *[p for p in own if id(p) not in taken]]
        dense = self.borrowed
        if sparse:
            apart = set(map(id, sparse))
            dense = [p for p in dense if id(p) not in apart]
        self.present = [*dense, *self.loose]

    def _bring(self, flats: Sequence[FlatMasters]) -> list[Tensor]:
        """Give masters the gradients of weights; return those with sparse ones."""
        sparse = []
        for flat in flats:
            gradients = [weight.grad for weight in flat.weights]
            rows = zip(flat.masters, flat.take(gradients), gradients, strict=True)
            for master, view, gradient in rows:
                if gradient is None:
                    continue
                self.borrowed.append(master)
                if gradient.is_sparse:
                    sparse.append(master)
                    view = in_float32(gradient)
                master.grad = view
        return sparse

    @property
    def pieces(self) -> list[Tensor]:
        """The same gradients as few tensors: whole buffers, and gradients outside."""
        buffers = [piece for flat in self.flats for piece in flat.pieces]
        return buffers + [p.grad for p in self.loose]

    @torch.no_grad()
    def penalize(
        self,
        regularizers: Mapping[Tensor, Regularizer],
        masters: Mapping[Tensor, Tensor],
        scale: float | Tensor,
    ) -> None:
        """Add scale x the penalty's gradient to that of each regularized master."""
        for flat in self.flats if regularizers else []:
            for weight, view in zip(flat.weights, flat.master_gradients, strict=True):
                if weight in regularizers:
                    master = masters[weight]
                    penalty = penalty_gradient(regularizers[weight], master) * scale
                    self._put(master, view, add_penalty(master.grad, penalty))

    def _put(self, master: Tensor, view: Tensor, gradient: Tensor) -> None:
        """Set the gradient of a master, at its place in the buffer."""
        if master.grad is None:
            self.present.append(master)
            self.borrowed.append(master)
        self.loose = [p for p in self.loose if p is not master]
        view.copy_(gradient)
        master.grad = view

    def largest(self, least: float) -> float:
        """Return the largest magnitude, at least ``least``; a host sync per device."""
        pieces = self.pieces
        if shards.are_among(pieces):
            return max(least, *magnitudes(pieces).tolist())
        values = [stored(gradient) for gradient in pieces]
        ranges = [torch.stack(v.aminmax()) for v in values if v.numel()]
        return max([least, *(r.abs().amax().item() for r in ranges)])

    def release(self) -> None:
        """Set the gradients of masters to None if they came from the model."""
        for master in self.borrowed:
            master.grad = None


def fill_buffers(
    flats: Iterable[FlatMasters], pairs: Iterable[tuple[Tensor | None, Tensor]]
) -> dict[int, tuple[Tensor, Tensor]]:
    """Copy the dense gradients of weights into the buffers of their masters.

    Returns:
        ``id(weight)`` -> its gradient in the buffer, and its master. Weights without a
        dense gradient are left out.
    """
    gradients = {id(weight): gradient for gradient, weight in pairs}
    filled = {}
    for flat in flats:
        own = [gradients.get(id(weight)) for weight in flat.weights]
        rows = zip(flat.weights, own, flat.take(own), flat.masters, strict=True)
        for weight, gradient, view, master in rows:
            if gradient is not None and not gradient.is_sparse:
                filled[id(weight)] = view, master
    return filled


def stored(gradient: Tensor) -> Tensor:
    """Return the stored elements of a gradient; duplicate rows are not summed."""
    return gradient._values() if gradient.is_sparse else gradient


def in_float32(gradient: Tensor | None) -> Tensor | None:
    """Return a gradient in float32, or None if there is none.

    A dense one is contiguous, as its master is: torch's fused optimizers pair the
    elements of both by their places in memory.
    """
    if gradient is None:
        return None
    if not gradient.is_sparse:
        return gradient.float().contiguous()
    if gradient.dtype == torch.float32:
        return gradient
    return with_values(gradient, gradient._values().float())
