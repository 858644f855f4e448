"""One step on the gradients of a scaled loss: finite check, update and report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.interface import StepReport
from lockstep.messages.scaling import loss_scaling as words
from lockstep.pytorch.base.fused_step import path_to_divider, step_undivided
from lockstep.pytorch.base.gradients import name_in
from lockstep.pytorch.scaling.gradients.division import fit, unscaled
from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.finite import are_surely_finite, finite_flags, times
from lockstep.pytorch.tensors.norms import LARGEST, total_norm
from lockstep.pytorch.tensors.rounding import rounded

__all__ = ["ScaledStep"]

DOUBLE = torch.float64, torch.complex128


class ScaledStep:
    """One step on gradients that are multiplied by a loss scale.

    Call :meth:`look`, then :meth:`update` unless the step is skipped. :meth:`report` is
    called when a user reads the report.

    Args:
        parameters: the parameters that have a gradient.
        held: the factor that is still in the gradients; None for no factor.
        pieces: the gradients as fewer tensors; None for those of ``parameters``.

    Attributes:
        finite: whether all gradients are finite.
        fits: [len(seen)], whether each gradient is finite; None if all are.
        seen: the parameters of ``fits``.
        norm: the global norm of the unscaled gradients in float64, if computed.
        clip_factor: the factor that clips the gradients, in float64.
        divisor: the number that unscales and clips at once: held / clip_factor.
        applied: whether the wrapped optimizer updates.
        left_out: the parameters that a skipped step would have trained.
        absent: the parameters that an applied step left out, without gradients.
        divided: whether the gradients are divided already; None if only some may be.
        scales: the loss scales before and after this step.
    """

    finite: bool | Tensor = True
    fits: Tensor | list[bool] | None = None
    norm: float | Tensor | None = None
    clip_factor: float | Tensor | None = None
    applied: bool | Tensor = True
    left_out: Sequence[Tensor] = ()
    absent: Sequence[Tensor] = ()
    divided: bool | None = False
    scales: tuple[float | Tensor, float | Tensor] = (1.0, 1.0)

    def __init__(
        self,
        parameters: list[Tensor],
        held: Any,
        pieces: Sequence[Tensor] | None = None,
    ) -> None:
        self.parameters = self.seen = parameters
        self.held = self.divisor = 1.0 if held is None else held
        self.pieces = [p.grad for p in parameters] if pieces is None else pieces

    def look(self, clip_norm: float | None) -> None:
        """Check whether the gradients are finite, in one host sync.

        norm = sqrt(sum g^2) / held and clip_factor = min(1, clip_norm / norm) are
        computed unless ``clip_norm`` is None. Gradients are finite if every element is
        finite and its unscaled value fits the dtype. With ``clip_norm``, the norm must
        fit float32 too.
        """
        if clip_norm is None:
            self.decide(are_surely_finite(self.pieces))
            return
        norm = total_norm(self.pieces).item() / self.held
        factor = clip_norm / norm if norm > clip_norm else 1.0
        self.norm, self.clip_factor = norm, factor
        self.clip(factor)
        self.decide(norm <= LARGEST, norm <= LARGEST)

    def look_and_clip(self, factor_of: Callable[[float], float]) -> None:
        """Do as :meth:`look`, but clip by another rule, and report no norm.

        ``factor_of``: global norm of the unscaled gradients -> factor.
        """
        norm = total_norm(self.pieces).item() / self.held
        self.clip(factor_of(norm))
        self.decide(math.isfinite(norm))

    def clip(self, factor: float) -> None:
        """Let the division multiply by ``factor`` as well."""
        self.divisor = self.held / factor if factor else math.inf

    def decide(self, finite: bool, has_norm: bool = True) -> None:
        """Store whether the gradients are finite; check each if that is not certain.

        ``has_norm``: whether the norm fits float32, if it must.
        """
        if not finite or self.held < 1:
            self.fits = fit([p.grad for p in self.parameters], self.held)
            finite = has_norm and bool(self.fits.all())
        self.finite = finite

    def look_at_elements(self, clip_norm: float | None, needs_any: bool) -> None:
        """Check whether each element is finite, without unscaling, whatever the norm.

        With ``needs_any``, gradients without elements count as not finite.
        """
        if clip_norm is not None:
            self.look(clip_norm)
        gradients = [p.grad for p in self.parameters]
        self.fits = finite_flags(gradients)
        is_empty = not any(
            g._values().numel() if g.is_sparse else g.numel() for g in gradients
        )
        self.finite = all(self.fits) and not (needs_any and is_empty)

    def add_look(self, first: ScaledStep) -> None:
        """Count the gradients as finite only if the ``first`` check found them finite.

        If it did not, its flags are used, because clipping by a norm of NaN makes every
        gradient NaN.
        """
        self.finite = self.finite & first.finite
        if not first.finite:
            self.seen, self.fits = first.seen, first.fits

    def update(
        self, optimizer: Optimizer, borrowed: bool, take: Callable[[], Any]
    ) -> None:
        """Divide the gradients and let ``optimizer`` update.

        A fused optimizer divides as it updates, see :meth:`_may_divide_inside`.

        Args:
            optimizer: the wrapped optimizer.
            borrowed: whether the given gradients must not change.
            take: calls the optimizer's step.
        """
        path = None if self.divisor == 1 else path_to_divider(optimizer)
        if self.divisor == 1:
            take()
        elif path is not None and self._may_divide_inside(path):
            self.own_gradients(borrowed)
            number = rounded(self.divisor, torch.float32)
            # It divides as it updates: one that raises may have divided some of them.
            self.divided = None
            step_undivided(path, take, number, self.pieces[0].device)
            self.divided = True
        else:
            self.divide(borrowed)
            take()

    def _may_divide_inside(self, path: Sequence[Optimizer]) -> bool:
        """Whether ``path[-1]`` may divide the gradients as it updates.

        Not if some are DTensors. If there are wrappers around it, they need a finite
        divisor, and dense gradients in float32.
        """
        if shards.are_among(self.pieces):
            return False
        if len(path) == 1:
            return True
        dense = [g.dtype == torch.float32 and not g.is_sparse for g in self.pieces]
        return all(dense) and self.divisor <= LARGEST

    def own_gradients(self, borrowed: bool = False) -> None:
        """Copy gradients that must not be overwritten: borrowed or shared ones."""
        if borrowed or foreach.share_elements(self.pieces):
            for parameter in self.parameters:
                parameter.grad = parameter.grad.clone()
            self.pieces = [p.grad for p in self.parameters]

    @torch.no_grad()
    def divide(self, borrowed: bool = False) -> None:
        """Multiply in place by the float32 reciprocal, rounded once to each dtype.

        Gradients in float64 are multiplied by the float64 reciprocal.
        """
        self.own_gradients(borrowed)
        divisor = float(self.divisor)
        exact = 1 / divisor if divisor else math.inf
        factor = rounded(exact, torch.float32)
        gradients = shards.parts_of(self.pieces)
        values = [g._values() if g.is_sparse else g for g in gradients]
        parts = [[values[k] for k in same] for same in foreach.alike(values)]
        half = [part for part in parts if part[0].itemsize < 4]
        # Allocate first, because that may fail.
        products = [times(part, factor) for part in half]
        self.divided = None
        for part in parts:
            if part[0].itemsize >= 4:
                number = exact if part[0].dtype in DOUBLE else factor
                foreach.scale_alike_in_place(part, number)
        for part, product in zip(half, products, strict=True):
            foreach.copy(part, product)
        self.divided = True

    @torch.no_grad()
    def unscale(self, flush: bool) -> None:
        """Divide the gradients by the factor ``held``, in place.

        With ``flush``, subnormals become zero, as in ``compute_gradients``.
        """
        if flush:
            self.own_gradients()
            self.overwrite(unscaled(self.pieces, self.held, flush))
        elif self.held != 1:
            self.divide()

    def overwrite(self, products: Sequence[Tensor]) -> None:
        """Overwrite the gradients with their divided values."""
        self.divided = None
        for gradient, product in zip(self.pieces, products, strict=True):
            gradient.copy_(product)
        self.divided = True

    def replace(self, held: Any) -> None:
        """Replace the gradients by divided ones, whose subnormals are zero."""
        products = unscaled(self.pieces, held, flush=True)
        self.divided = None
        for parameter, product in zip(self.parameters, products, strict=True):
            parameter.grad = product
        self.pieces, self.divided = products, True

    def nonfinite(self, names: Mapping[Tensor, str]) -> list[str]:
        """Return the names of the parameters whose gradients were not finite."""
        if self.fits is None:
            return []
        fits = self.fits.tolist() if isinstance(self.fits, Tensor) else self.fits
        nonfinite = compress(self.seen, [not fit for fit in fits])
        return [name_in(names, parameter) for parameter in nonfinite]

    def report(
        self, names: Mapping[Tensor, str], inner: StepReport | None
    ) -> words.ScaledStepReport:
        """Return the report; ``inner`` is the wrapped optimizer's ``last_step``."""
        applied, nonfinite = bool(self.applied), self.nonfinite(names)
        before, after = map(float, self.scales)
        has_norm = self.norm is not None and not nonfinite
        return words.report(
            inner,
            [name_in(names, parameter) for parameter in self.left_out],
            nonfinite,
            (before, after),
            applied,
            float(self.norm) if has_norm else None,
            float(self.clip_factor) if has_norm and applied else None,
            [name_in(names, parameter) for parameter in self.absent],
        )
