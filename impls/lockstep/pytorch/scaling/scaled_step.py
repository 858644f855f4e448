"""One step on the gradients of a scaled loss: what it looks at, does and reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.interface import StepReport
from lockstep.messages.scaling import loss_scaling as words
from lockstep.pytorch.base.stack import comes_with_torch
from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.finite import finite_flags, have_finite_sums, times
from lockstep.pytorch.tensors.norms import LARGEST, magnitudes, total_norm
from lockstep.pytorch.tensors.rounding import reciprocal, rounded

__all__ = [
    "ScaledStep",
    "fit",
    "handing",
    "is_fused",
    "replace_unscaled",
    "unscaled",
]

DOUBLE = torch.float64, torch.complex128
FUSED = torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad
"""Optimizers that may be fused, with all that derive from them."""

Groups = Sequence[Mapping[str, Any]]


class ScaledStep:
    """One step on gradients that hold a loss scale.

    Its methods are called in this order: :meth:`look`, :meth:`update` unless the step
    is skipped, and :meth:`report` if somebody asks.

    Args:
        parameters: those that have a gradient.
        held: the scale that the gradients hold; None: they hold none.
        pieces: the same gradients in fewer tensors; None: those of ``parameters``.

    Attributes:
        finite: whether all gradients are finite.
        fits: [len(seen)], whether each gradient is finite; None: all are.
        seen: the parameters of ``fits``.
        norm: the global norm of the unscaled gradients, in float64; None: not taken.
        clip_factor: what they are multiplied by to be clipped, in float64.
        divisor: the one number that unscales and clips: held / clip_factor.
        applied: whether the wrapped optimizer takes its step.
        divided: whether the gradients are divided already; None: some of them may be.
        scales: the loss scale before and after the step.
    """

    finite: bool | Tensor = True
    fits: Tensor | list[bool] | None = None
    norm: float | Tensor | None = None
    clip_factor: float | Tensor | None = None
    applied: bool | Tensor = True
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
        """Look at the gradients, in one host sync.

        norm = sqrt(sum g^2) / held; clip_factor = min(1, clip_norm / norm); neither is
        taken if ``clip_norm`` is None. Finite: every element is and, as unscaled, fits
        its dtype; if they are to be clipped, float32 must hold the norm too.
        """
        has_norm = True
        if clip_norm is None:
            finite = have_finite_sums(self.pieces)
        else:
            norm = total_norm(self.pieces).item() / self.held
            finite = has_norm = norm <= LARGEST
            factor = clip_norm / norm if norm > clip_norm else 1.0
            self.norm, self.clip_factor = norm, factor
            self.divisor = self.held / factor if factor else math.inf
        if not finite or self.held < 1:
            self.fits = fit([p.grad for p in self.parameters], self.held)
            finite = has_norm and bool(self.fits.all())
        self.finite = finite

    def look_at_elements(self, clip_norm: float | None, needs_any: bool) -> None:
        """Look whether each element is finite as it is, whatever the norm.

        ``needs_any``: without any element, gradients are not finite.
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
        """Let gradients be finite only if they were at a first look, too.

        It is the first one's flags that count then: clipping to a norm that is NaN
        makes every gradient NaN.
        """
        self.finite = self.finite & first.finite
        if not first.finite:
            self.seen, self.fits = first.seen, first.fits

    def update(
        self, optimizer: Optimizer, borrowed: bool, take: Callable[[], Any]
    ) -> None:
        """Let ``optimizer`` take its step with the gradients divided.

        A fused optimizer divides by itself, but no DTensors.

        Args:
            optimizer: the wrapped one.
            borrowed: the gradients must keep their values.
            take: lets it take its step.
        """
        if self.divisor == 1:
            take()
        elif is_fused(optimizer) and not shards.are_among(self.pieces):
            self.own_gradients(borrowed)
            number = rounded(self.divisor, torch.float32)
            divisor = torch.full((), number, device=self.pieces[0].device)
            with handing(optimizer, divisor), self.noting_begin(optimizer):
                take()
            self.divided = True
        else:
            self.divide(borrowed)
            take()

    @contextmanager
    def noting_begin(self, optimizer: Optimizer) -> Iterator[None]:
        """Note in the block when a fused optimizer may begin to divide.

        torch's own do not before they have the state of their first group. What another
        optimizer does is not known.
        """
        step = vars(optimizer).get("step")
        # One that is compiled does not make the state as it is written.
        is_plain = step is None or getattr(step, "_wrapped_by_lr_sched", False)
        if not (is_plain and isinstance(optimizer, FUSED)):
            self.divided = None
            yield
            return
        make_state = optimizer._init_group

        def noted(*arguments: Any) -> Any:
            answer = make_state(*arguments)
            self.divided = None
            return answer

        optimizer._init_group = noted
        try:
            yield
        finally:
            del optimizer._init_group

    def own_gradients(self, borrowed: bool = False) -> None:
        """Copy gradients that must not be written into: borrowed or shared ones."""
        if borrowed or foreach.share_elements(self.pieces):
            for parameter in self.parameters:
                parameter.grad = parameter.grad.clone()
            self.pieces = [p.grad for p in self.parameters]

    @torch.no_grad()
    def divide(self, borrowed: bool = False) -> None:
        """Divide in place: times the float32 reciprocal, rounded once to each dtype.

        Gradients in float64 are multiplied by the float64 reciprocal.
        """
        self.own_gradients(borrowed)
        divisor = float(self.divisor)
        exact = 1 / divisor if divisor else math.inf
        factor = rounded(exact, torch.float32)
        parts = shards.parts_of(self.pieces)
        values = [g._values() if g.is_sparse else g for g in parts]
        double = [v for v in values if v.dtype in DOUBLE]
        single = [v for v in values if v.itemsize >= 4 and v.dtype not in DOUBLE]
        half = [v for v in values if v.itemsize < 4]
        # First what needs memory, for it may fail.
        products = times(half, factor) if half else []
        self.divided = None
        if double:
            foreach.scale_in_place(double, exact)
        if single:
            foreach.scale_in_place(single, factor)
        foreach.copy(half, products)
        self.divided = True

    @torch.no_grad()
    def unscale(self, flush: bool) -> None:
        """Divide the gradients by what they hold, in place.

        ``flush``: subnormals are zero, as where ``compute_gradients`` divides.
        """
        if flush:
            self.own_gradients()
            self.overwrite(unscaled(self.pieces, self.held, flush))
        elif self.held != 1:
            self.divide()

    def overwrite(self, products: Sequence[Tensor]) -> None:
        """Write what the gradients are as divided into them."""
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
        return [names[p] for p in compress(self.seen, [not fit for fit in fits])]

    def report(
        self, names: Mapping[Tensor, str], inner: StepReport | None
    ) -> words.ScaledStepReport:
        """Return the report; ``inner``: the ``last_step`` of the wrapped optimizer."""
        applied, nonfinite = bool(self.applied), self.nonfinite(names)
        had_gradient = set(self.seen)
        trained = [n for p, n in names.items() if p.requires_grad or p in had_gradient]
        before, after = map(float, self.scales)
        has_norm = self.norm is not None and not nonfinite
        return words.report(
            inner,
            trained,
            nonfinite,
            (before, after),
            applied,
            float(self.norm) if has_norm else None,
            float(self.clip_factor) if has_norm and applied else None,
        )


def fit(gradients: Sequence[Tensor], scale: float | Tensor) -> Tensor:
    """Return which gradients, divided by ``scale``, fit their dtypes.

    A flag is False where an element is not finite: [n], bool.
    """
    limits = [torch.finfo(gradient.dtype).max for gradient in gradients]
    quotients = (magnitudes(gradients) / scale).unbind()
    return torch.stack([q <= limit for q, limit in zip(quotients, limits, strict=True)])


@torch.no_grad()
def replace_unscaled(
    gradients: list[Tensor | None], scale: float | Tensor, flush: bool
) -> None:
    """Replace gradients by those times the float32 reciprocal of the scale.

    None stays None. It goes in runs: gradients that nobody else holds make room for the
    next products.
    """
    if isinstance(scale, Tensor):
        factor: Tensor | float = 1 / scale
    else:
        factor = reciprocal(rounded(scale, torch.float32))
    places = [k for k, gradient in enumerate(gradients) if gradient is not None]
    for positions in foreach.runs([gradients[k] for k in places]):
        run = [places[position] for position in positions]
        products = times([gradients[k] for k in run], factor, flush)
        for k, product in zip(run, products, strict=True):
            gradients[k] = product


def unscaled(
    gradients: Sequence[Tensor], scale: float | Tensor, flush: bool
) -> list[Tensor]:
    """Do as :func:`replace_unscaled`, but return the products."""
    products: list[Any] = list(gradients)
    replace_unscaled(products, scale, flush)
    return products


def is_fused(optimizer: Optimizer, groups: Groups | None = None) -> bool:
    """Whether ``step`` reads ``grad_scale`` and ``found_inf``, with these groups.

    A copy of one of torch's optimizers has forgotten it, but its groups know. None:
    those of the optimizer.
    """
    unknown = None if comes_with_torch(optimizer) else False
    able = getattr(optimizer, "_step_supports_amp_scaling", unknown)
    groups = optimizer.param_groups if groups is None else groups
    return able is not False and all(group.get("fused", able) for group in groups)


@contextmanager
def handing(
    optimizer: Optimizer, grad_scale: Tensor, found_inf: Tensor | None = None
) -> Iterator[None]:
    """Let steps in the block divide gradients by ``grad_scale``, which they write back.

    Where ``found_inf`` is 1 they change nothing.
    """
    optimizer.grad_scale, optimizer.found_inf = grad_scale, found_inf
    try:
        yield
    finally:
        del optimizer.grad_scale, optimizer.found_inf
