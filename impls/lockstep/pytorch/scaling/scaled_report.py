"""What one step with a scaled loss did, told when somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

from torch import Tensor

from lockstep.interface import StepReport
from lockstep.messages.scaling import loss_scaling as words

__all__ = ["ScaledStep"]


class ScaledStep(NamedTuple):
    """What a step did: numbers, or 0-d tensors that nobody has asked for yet.

    Attributes:
        seen: the parameters that had a gradient.
        fits: [len(seen)], whether each gradient was finite; None: all were.
        scales: the loss scale before and after the step.
        applied: whether the wrapped optimizer took its step.
        norm: the global norm of the unscaled gradients; None if it was not taken.
        clip_factor: what they were multiplied by to be clipped.
    """

    seen: list[Tensor]
    fits: Tensor | list[bool] | None
    scales: tuple[float | Tensor, float | Tensor]
    applied: bool | Tensor
    norm: float | Tensor | None = None
    clip_factor: float | Tensor | None = None

    def nonfinite(self, names: Mapping[Tensor, str]) -> list[str]:
        """Return the names of the parameters whose gradients were not finite."""
        if self.fits is None:
            return []
        fits = self.fits.tolist() if isinstance(self.fits, Tensor) else self.fits
        return [names[p] for p in compress(self.seen, [not fit for fit in fits])]

    def report(
        self, names: Mapping[Tensor, str], inner: StepReport | None
    ) -> words.ScaledStepReport:
        """Say it; ``inner``: the ``last_step`` of the wrapped optimizer, if any."""
        applied, found = bool(self.applied), self.nonfinite(names)
        had_gradient = set(self.seen)
        told = [n for p, n in names.items() if p.requires_grad or p in had_gradient]
        before, after = map(float, self.scales)
        told_norm = self.norm is not None and not found
        return words.report(
            inner,
            told,
            found,
            (before, after),
            applied,
            float(self.norm) if told_norm else None,
            float(self.clip_factor) if told_norm and applied else None,
        )
