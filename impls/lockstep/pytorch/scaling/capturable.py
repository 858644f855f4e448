"""A step on the gradients of a scaled loss without a host sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.pytorch.base.fused_step import make_momentum, step_dividing
from lockstep.pytorch.scaling.gradients.division import fit, unscaled
from lockstep.pytorch.scaling.scaled_step import ScaledStep
from lockstep.pytorch.tensors.norms import LARGEST, tensor_norms, total_norm

__all__ = ["CapturableStep"]


class CapturableStep(ScaledStep):
    """A :class:`ScaledStep` with equal results, whose numbers are 0-d tensors.

    Args:
        parameters: the parameters that have a gradient.
        held: the factor that is still in the gradients, 0-d; None for no factor.
        pieces: the same gradients as fewer tensors; None for those of ``parameters``.
        may_be_below_one: whether ``held`` may be below 1. Its value cannot be read
            without a sync, so True costs a second read of the gradients.
    """

    held: Tensor
    divisor: Tensor
    finite: Tensor

    def __init__(
        self,
        parameters: list[Tensor],
        held: float | Tensor | None,
        pieces: Sequence[Tensor] | None = None,
        may_be_below_one: bool = False,
    ) -> None:
        if not isinstance(held, Tensor):
            number = 1.0 if held is None else held
            device = parameters[0].device
            held = torch.full((), number, dtype=torch.float32, device=device)
        # On a GPU the norm of each gradient tells at once which one is not finite.
        pieces = pieces if parameters[0].is_cpu else None
        super().__init__(parameters, held, pieces)
        self.may_be_below_one = may_be_below_one

    @torch.no_grad()
    def look(self, clip_norm: float | None) -> None:
        """Look at the gradients: see the base class."""
        gradients = [p.grad for p in self.parameters]
        on_cpu, held = gradients[0].is_cpu, self.held.double()
        norms = total_norm(self.pieces) if on_cpu else tensor_norms(gradients)
        norm = torch.linalg.vector_norm(norms) / held
        finite, factor = norm.isfinite(), torch.ones_like(norm)
        if clip_norm is not None:
            finite &= norm <= LARGEST
            factor = (clip_norm / norm).clamp(max=1.0)
            self.norm, self.clip_factor = norm, factor
        if self.may_be_below_one:
            self.fits = fit(gradients, held)
            finite &= (held >= 1) | self.fits.all()
        elif not on_cpu:
            self.fits = norms.isfinite()
        elif not finite:
            self.fits = fit(gradients, held)
        self.finite, self.divisor = finite, held / factor

    def add_look(self, first: ScaledStep) -> None:
        """Count the gradients as finite only if an earlier check found them finite."""
        if not isinstance(first.finite, Tensor) or first.finite.is_cpu:
            super().add_look(first)
            return
        self.finite = self.finite & first.finite
        same = list(map(id, self.seen)) == list(map(id, first.seen))
        if same and self.fits is not None and first.fits is not None:
            self.fits = torch.where(first.finite, self.fits, first.fits)
        else:
            self.seen, self.fits = first.seen, first.fits

    @torch.no_grad()
    def update(
        self, optimizer: Optimizer, borrowed: bool, take: Callable[[], Any]
    ) -> None:
        """Divide and update with the fused ``optimizer``, or skip the update."""
        self.own_gradients(borrowed)
        make_momentum(optimizer)
        divisor, skip = self.divisor.float(), (~self.finite).float()
        self.divided = None
        step_dividing(optimizer, take, divisor, skip)

    @torch.no_grad()
    def unscale(self, flush: bool) -> None:
        """Divide the gradients by their factor, in place."""
        self.own_gradients()
        self.pieces = [p.grad for p in self.parameters]
        self.overwrite(unscaled(self.pieces, self.held, flush))
