"""Scaled gradients: what ``.grad`` holds, the finite check, and the division."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.errors import UnscaledTwiceError, UnsupportedError
from lockstep.pytorch import foreach, norms, shards
from lockstep.pytorch.gradients import name_in

SCALED, PLAIN = "scaled", "plain"
"""What a step leaves in ``.grad``, see :class:`Contents`."""


class Contents:
    """What the ``.grad`` of a model holds between two steps.

    As with ``GradScaler``, there are three stages: plain gradients; gradients of a
    scaled loss, which hold ``factor``; and gradients that ``unscale_`` has divided and
    looked at, with the result ``checked``. The backward pass of a scaled loss begins
    the second stage. A step, or ``zero_grad`` of the optimizer, returns to the first.

    ``zero_grad`` of the model cannot be noticed. So what a step has left is a mark on
    one gradient, the first, and counts only while that gradient is there:

    ======= ================================ ==========================================
    mark    the step                         until the gradients are cleared, there is
    ======= ================================ ==========================================
    SCALED  divided copies, or was skipped   no step and no scaled backward pass, while
                                             the gradient is unchanged
    PLAIN   divided the gradients            no scaled backward pass, while unchanged
    ======= ================================ ==========================================

    A step that raised may have divided some of the gradients: until all of them are
    cleared, there is no step and no scaled backward pass.

    Attributes:
        factor: what the backward passes of scaled losses multiplied the gradients by;
            None for nothing.
        asked: whether a loss was scaled whose backward pass was not seen.
        checked: what ``unscale_`` saw of the gradients; None before it.
        known_finite: whether ``optimize_loss`` has found the gradients finite.
        clip: how ``optimize_loss`` clips them: global norm -> factor; None for not.
        is_grad: whether this is about ``.grad`` itself, not about other gradients.
        own: the contents of ``.grad`` while gradients of a caller, which must not be
            changed, are there instead.
    """

    def __init__(self, is_grad: bool = True, own: Contents | None = None) -> None:
        self.is_grad, self.own = is_grad, own
        self.factor: Any = None
        self.asked = False
        self.checked: Step | None = None
        self.known_finite = False
        self.clip: Callable[[float], float] | None = None
        self._mark: tuple[str, weakref.ref[Tensor], int] | None = None
        self._spoiled: list[weakref.ref[Tensor]] = []

    def use(self) -> bool:
        """Note that a step uses the gradients; return whether they hold a factor."""
        was_scaled = self.factor is not None
        self.factor, self.asked, self.checked = None, False, None
        return was_scaled

    def lent(self) -> Contents:
        """Return the contents for gradients of a caller, which hold the same factor."""
        lent = Contents(is_grad=False, own=self)
        lent.factor, lent.known_finite = self.factor, self.known_finite
        self.known_finite = False
        return lent

    def forget(self) -> None:
        """Return to the first stage: the gradients were cleared.

        A loss may have been scaled before that.
        """
        self.factor = self.checked = self._mark = None
        self._spoiled = []

    def note(self, owner: str, scale: Any) -> None:
        """Note the backward pass of a loss that was multiplied by ``scale``.

        Several passes add up in ``.grad``, so they need one scale. Otherwise one pass
        goes through all losses, so their scales are multiplied.
        """
        if self.factor is None:
            self.factor = scale
        elif not self.is_grad:
            self.factor = self.factor * scale
        elif not isinstance(scale, Tensor) and scale != self.factor:
            raise UnsupportedError(
                f"{owner}: expected losses with one scale until the step, got one that "
                f"was scaled by {scale:g} after others by {self.factor:g}; call "
                "scale_loss after the last step, or zero_grad() to begin again."
            )
        self.asked = False

    def mark(self, what: str, gradient: Tensor) -> None:
        """Note what a step has left in the first gradient of the model."""
        self._mark = what, weakref.ref(gradient), gradient._version

    def spoil(self, grads: Iterable[Tensor | None]) -> None:
        """Note that a step raised, and may have divided some of these."""
        if self.is_grad:
            self._mark = None
            self._spoiled = [weakref.ref(grad) for grad in grads if grad is not None]

    def are_spoiled(self, grads: Iterable[Tensor]) -> bool:
        """Whether a step that raised may have divided one of these."""
        spoiled = {id(reference()) for reference in self._spoiled}
        return not spoiled.isdisjoint(map(id, grads))

    def marked(self, what: str) -> Tensor | None:
        """Return the gradient with this mark; None if it is gone."""
        return self._mark[1]() if self._mark and self._mark[0] == what else None

    def is_unchanged(self, gradient: Tensor) -> bool:
        """Whether this is the marked gradient, and nothing has written into it."""
        if self._mark is None or self._mark[1]() is not gradient:
            return False
        return self._mark[2] == gradient._version

    def refuse_sum(self, owner: str, grads: Sequence[Tensor], may_look: bool) -> None:
        """Raise if gradients of a scaled loss may not be added to those of the model.

        Reading these waits for a GPU, so ``may_look`` says whether to.
        """
        first = grads[0]
        is_left = self.is_unchanged(first) or self.are_spoiled(grads)
        # One that a step has left, and that has changed since, was cleared. On a GPU it
        # is not read, because that would be a host sync in each step.
        of_step = first is self.marked(SCALED) or first is self.marked(PLAIN)
        is_sure = of_step and not is_left and self.checked is None
        if may_look and (first.is_cpu or not is_sure):
            is_left = bool(norms.total_norm(grads))
        if not is_left and (may_look or self.checked is None):
            return
        if self.checked is not None:
            raise UnscaledTwiceError(
                f"{owner}: expected no further backward pass after unscale_(), got one "
                "whose scaled gradients would be added to unscaled ones; call it "
                "before, or zero_grad() to begin again."
            )
        raise UnsupportedError(
            f"{owner}: expected no gradients in .grad before those of a scaled loss, "
            "got some that would not be divided by the scale; call zero_grad() first, "
            "and scale_loss for each micro-batch."
        )

    def refuse_used(self, owner: str, parameters: Iterable[Tensor]) -> None:
        """Raise for gradients that a step has used, and that are not plain since."""
        scaled = self.marked(SCALED)
        if not self.is_grad or (scaled is None and not self._spoiled):
            return
        there = [p.grad for p in parameters if p.grad is not None]
        if self.are_spoiled(there):
            raise UnsupportedError(
                f"{owner}.step: expected new gradients after the step that raised, got "
                "some that it may have divided by the loss scale; call zero_grad() and "
                "compute them again."
            )
        is_new = self.factor is not None or self.checked is not None
        if is_new or scaled is None or not self.is_unchanged(scaled):
            return
        if any([gradient is scaled for gradient in there]):
            raise UnsupportedError(
                f"{owner}.step: expected gradients that were not applied yet, got "
                "those of the last step again, which hold the loss scale; call "
                "zero_grad() and scale_loss(loss).backward() before each step."
            )


@dataclass(eq=False)
class Step:
    """What is known of one step; a report is made of it when it is read.

    Attributes:
        parameters: those with a gradient.
        finite: whether all gradients are finite; 0-d if only the device knows.
        fits: whether each gradient is finite; None if all are.
        norm: the global norm of the unscaled gradients in float64, if computed.
        clip_factor: the factor that clips them, at most 1.
        amax: the largest unscaled magnitude, if the scale needs it.
        scales: the loss scales before and after the step.
        trained: the parameters that a skipped step would have trained.
        absent: the parameters that an applied step left out.
    """

    parameters: list[Tensor]
    finite: Any = True
    fits: Any = None
    norm: Any = None
    clip_factor: Any = 1.0
    amax: float = 0.0
    scales: tuple[Any, Any] = (1.0, 1.0)
    trained: Sequence[Tensor] = ()
    absent: Sequence[Tensor] = ()

    def look(self, pieces: Sequence[Tensor], divisor: Any, limit: float | None) -> None:
        """Check and measure the gradients in one host sync.

        A gradient is finite if each unscaled element fits its dtype. With a ``limit``
        for the norm, the norm must fit float32 too.

        Args:
            pieces: the gradients of ``parameters``, maybe as fewer tensors.
            divisor: the factor that is in the gradients. If it is a tensor, there is
                no host sync, and the results are 0-d tensors.
            limit: the largest norm; None for no clipping.
        """
        if isinstance(divisor, Tensor):
            self._look_on_device(pieces, divisor, limit)
            return
        fits_norm = True
        if limit is None:
            finite = norms.are_surely_finite(pieces)
        else:
            self.norm = norms.total_norm(pieces).item() / divisor
            finite = fits_norm = self.norm <= norms.LARGEST
            self.clip_factor = limit / self.norm if self.norm > limit else 1.0
        if not finite or divisor < 1:
            self.fits = fit([p.grad for p in self.parameters], divisor)
            finite = fits_norm and bool(self.fits.all())
        self.finite = finite

    @torch.no_grad()
    def _look_on_device(
        self, pieces: Any, divisor: Tensor, limit: float | None
    ) -> None:
        self.fits = fit([p.grad for p in self.parameters], divisor)
        norm = norms.total_norm(pieces) / divisor
        self.finite, self.clip_factor = self.fits.all(), torch.ones_like(norm)
        if limit is not None:
            self.norm, self.clip_factor = norm, (limit / norm).clamp(max=1.0)
            self.finite = self.finite & (norm <= norms.LARGEST)

    def divide(self, pieces: Sequence[Tensor], divisor: Any) -> bool:
        """Check and divide small gradients in one launch; return whether it did.

        A fused update would take longer to divide them.
        """
        if isinstance(divisor, Tensor) or divisor <= 1:
            return False
        if not norms.are_small(pieces) or not foreach.begin_apart(pieces):
            return False
        self.finite = foreach.are_finite(pieces, inverse(divisor))
        if not self.finite:
            self.fits = fit([p.grad for p in self.parameters], 1.0)
        return True

    def nonfinite(self, names: Mapping[Tensor, str]) -> list[str]:
        """Return the names of the parameters whose gradients were not finite."""
        if self.fits is None:
            return []
        culprits = compress(self.parameters, [not fit for fit in self.fits.tolist()])
        return [name_in(names, parameter) for parameter in culprits]


def fit(gradients: Sequence[Tensor], scale: float | Tensor) -> Tensor:
    """Return whether each gradient, divided by ``scale``, fits its dtype: [n], bool."""
    limits = [torch.finfo(gradient.dtype).max for gradient in gradients]
    quotients = (norms.magnitudes(gradients) / scale).unbind()
    return torch.stack([q <= limit for q, limit in zip(quotients, limits, strict=True)])


@torch.no_grad()
def divide_in_place(gradients: Sequence[Tensor], divisor: Any) -> None:
    """Multiply by the float32 reciprocal, in float64 by the float64 reciprocal.

    Half precision is multiplied in float32 and rounded once.
    """
    if isinstance(divisor, Tensor):
        foreach.scale_in_place(gradients, inverse(divisor))
        return
    exact = 1 / divisor if divisor else math.inf
    factor = foreach.rounded(exact, torch.float32)
    values = [g._values() if g.is_sparse else g for g in shards.parts_of(gradients)]
    for positions in foreach.alike(values):
        part = [values[k] for k in positions]
        if part[0].itemsize < 4:
            foreach.copy(part, foreach.times(part, factor))
        else:
            is_double = part[0].dtype == torch.float64
            foreach.scale_alike_in_place(part, exact if is_double else factor)


def largest_of(pieces: Iterable[Tensor], divisor: float) -> float:
    """Return the largest unscaled magnitude of finite gradients, in one host sync."""
    values = [p._values() if p.is_sparse else p for p in pieces]
    maxima = [v.abs().amax().double() for v in values if v.numel()]
    largest = norms.together(maxima, maxima[0].device).max().item() if maxima else 0.0
    with np.errstate(all="ignore"):
        return float(np.float32(largest) * (np.float32(1) / np.float32(divisor)))


def inverse(scale: float | Tensor) -> float | Tensor:
    """Return 1 / scale in float32."""
    if isinstance(scale, Tensor):
        return 1 / scale
    return foreach.reciprocal(foreach.rounded(scale, torch.float32))
