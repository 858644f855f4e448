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

from lockstep.pytorch import foreach, norms, shards
from lockstep.pytorch.gradients import name_in

PLAIN, APPLIED, APPLIED_SCALED, SPOILED = "plain", "applied", "scaled", "spoiled"
"""What may be known of a gradient, see :class:`Contents`."""


class Contents:
    """What the ``.grad`` of a model holds between two steps.

    As with ``GradScaler``, there are three stages: plain gradients; gradients of a
    scaled loss, which hold ``factor``; and gradients that ``unscale_`` has divided and
    looked at, with the result ``checked``. A step returns to the first stage.

    Gradients may be cleared or added to without our notice. So whatever else is known
    of them is a mark on the first one, with its version, and counts only while that
    gradient is there:

    - PLAIN: it was there, with nonzero elements, before the loss was scaled.
    - APPLIED, APPLIED_SCALED: a step has used it; with a scaled loss or without.
    - SPOILED: a step raised, which may have divided some of the gradients.

    Attributes:
        factor: what the gradients were multiplied by; None for nothing.
        checked: what ``unscale_`` saw of the gradients; None before it.
        known_finite: whether ``optimize_loss`` has found these gradients finite.
        clip: how ``optimize_loss`` clips them: global norm -> factor; None for not.
        own: the contents of ``.grad`` while those of a caller are there instead, which
            must not be changed; None for ``.grad`` itself.
    """

    def __init__(self, factor: Any = None, own: Contents | None = None) -> None:
        self.factor, self.own = factor, own
        self.checked: Step | None = None
        self.known_finite = False
        self.clip: Callable[[float], float] | None = None
        self._mark = ""
        self._marked: weakref.ref[Tensor] | None = None
        self._version = 0

    def lent(self) -> Contents:
        """Return the contents while gradients of a caller, with this factor, apply."""
        lent = Contents(self.factor, own=self)
        lent.known_finite, self.known_finite = self.known_finite, False
        return lent

    def returned(self) -> Contents:
        """Return the contents of ``.grad`` after those of a caller were applied."""
        self.own.factor = self.factor
        return self.own

    def mark(self, what: str, gradient: Tensor) -> None:
        """Note what is known of the first gradient of the model."""
        self._mark, self._marked = what, weakref.ref(gradient)
        self._version = gradient._version

    def forget(self) -> None:
        """Forget all but the factor: the gradients were cleared."""
        self.checked, self._mark, self._marked = None, "", None

    def marked(self, *marks: str) -> Tensor | None:
        """Return the gradient with one of these marks; None if it is gone."""
        return self._marked() if self._marked and self._mark in marks else None

    def is_written(self, gradient: Tensor) -> bool:
        """Whether the marked gradient has changed since."""
        return gradient._version != self._version


@dataclass(eq=False)
class Step:
    """What is known of one step; a report is made of it when it is read.

    Attributes:
        parameters: those with a gradient.
        finite: whether all gradients are finite; 0-d if only the device knows.
        fits: whether each gradient is finite; None if all are.
        norm: the global norm of the unscaled gradients in float64, if computed.
        factor: the factor that clips them, at most 1.
        amax: the largest unscaled magnitude, if the scale needs it.
        scales: the loss scales before and after the step.
        trained: the parameters that a skipped step would have trained.
        absent: the parameters that an applied step left out.
    """

    parameters: list[Tensor]
    finite: Any = True
    fits: Any = None
    norm: Any = None
    factor: Any = 1.0
    amax: float = 0.0
    scales: tuple[Any, Any] = (1.0, 1.0)
    trained: Sequence[Tensor] = ()
    absent: Sequence[Tensor] = ()

    def look(self, pieces: Sequence[Tensor], held: Any, limit: float | None) -> None:
        """Check and measure the gradients in one host sync.

        A gradient is finite if each unscaled element fits its dtype. With a ``limit``
        for the norm, the norm must fit float32 too.

        Args:
            pieces: the gradients of ``parameters``, maybe as fewer tensors.
            held: the factor that is in the gradients. If it is a tensor, there is no
                host sync, and the results are 0-d tensors.
            limit: the largest norm; None for no clipping.
        """
        if isinstance(held, Tensor):
            self._look_on_device(pieces, held, limit)
            return
        fits_norm = True
        if limit is None:
            finite = norms.are_surely_finite(pieces)
        else:
            self.norm = norms.total_norm(pieces).item() / held
            finite = fits_norm = self.norm <= norms.LARGEST
            self.factor = limit / self.norm if self.norm > limit else 1.0
        if not finite or held < 1:
            self.fits = fit([p.grad for p in self.parameters], held)
            finite = fits_norm and bool(self.fits.all())
        self.finite = finite

    @torch.no_grad()
    def _look_on_device(self, pieces: Any, held: Tensor, limit: float | None) -> None:
        self.fits = fit([p.grad for p in self.parameters], held)
        norm = norms.total_norm(pieces) / held
        self.finite, self.factor = self.fits.all(), torch.ones_like(norm)
        if limit is not None:
            self.norm, self.factor = norm, (limit / norm).clamp(max=1.0)
            self.finite = self.finite & (norm <= norms.LARGEST)

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
