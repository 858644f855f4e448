"""What both wrappers with a loss scale do: skip a step, move the scale, tell of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from lockstep.interface import Array, StepReport
from lockstep.reference.clip_gradients import clip_factor, global_norm, scale_gradients
from lockstep.reference.loss_scale import is_finite
from lockstep.reference.optimizers import Optimizer, Pairs
from lockstep.reference.variable import Variable
from lockstep.spec import loss_scaling as words
from lockstep.spec.pipeline import refuse_second_scale

__all__ = ["SkippingWrapper", "Verdict"]


class Verdict(NamedTuple):
    """What was found in the gradients of a step.

    Attributes:
        nonfinite: names of the variables whose gradients are not finite.
        finite: whether all are, and their norm if it was taken.
        norm: the global norm, float32; None if nothing is to be clipped, or something
            is not finite.
        shown: what an automatic scaler is to see: has_nan and the largest magnitude.
    """

    nonfinite: list[str]
    finite: bool
    norm: Array | None = None
    shown: tuple[Any, Any] | None = None


class SkippingWrapper(Optimizer):
    """A wrapper that leaves a step out if what it finds in the gradients is not finite.

    The scale moves after the update: a step that fails leaves it where it was.
    """

    owner: str
    inner_optimizer: Optimizer

    def __init__(
        self,
        inner_optimizer: Optimizer,
        at_floor: str,
        floor_patience: int,
        clip_norm: float | None,
        strict: bool,
    ) -> None:
        if not strict:
            refuse_second_scale(self.owner, inner_optimizer)
        self.inner_optimizer = inner_optimizer
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.clip_norm = clip_norm
        self.strict = strict
        self.skipped_in_a_row = 0
        self.last_step: StepReport | None = None

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        raise NotImplementedError

    @property
    def skips(self) -> bool:
        """Whether steps that are not finite are left out."""
        raise NotImplementedError

    def move_scale(self, verdict: Verdict) -> None:
        """Let the scale take note of a step."""
        raise NotImplementedError

    def scale_is_at_floor(self) -> bool:
        """Say whether no overflow can make the scale smaller."""
        raise NotImplementedError

    def known_as(self, variable: Variable) -> Variable:
        """Return the variable that the user knows in place of ``variable``."""
        return variable

    def judge(self, pairs: Pairs, strict_sums: bool = False) -> Verdict:
        """Look at the gradients of a step; the norm is taken only to be clipped."""
        bad = [variable for g, variable in pairs if not is_finite(g, strict_sums)]
        names = [self.known_as(variable).name for variable in bad]
        if names or self.clip_norm is None:
            return Verdict(names, not names)
        present = [gradient for gradient, _ in pairs if gradient is not None]
        with np.errstate(over="ignore"):
            norm = global_norm(present, np.dtype(np.float32))
        return Verdict(names, bool(np.isfinite(norm)), norm)

    def clipped(self, pairs: Pairs, norm: Array | None) -> tuple[Pairs, float | None]:
        """Return pairs whose norm is at most ``clip_norm``, and the factor of it."""
        if self.clip_norm is None or norm is None:
            return pairs, None
        # Below the limit nothing is multiplied: c (1/c) is not 1 for every c.
        over = bool(norm > self.clip_norm)
        factor = clip_factor(norm, self.clip_norm) if over else np.ones_like(norm)
        gradients = scale_gradients([gradient for gradient, _ in pairs], factor)
        variables = [variable for _, variable in pairs]
        return list(zip(gradients, variables, strict=True)), float(factor)

    def apply_or_skip(self, pairs: Pairs, update: Callable[[Pairs], None]) -> None:
        """Let ``update`` run with the clipped pairs unless the step is skipped."""
        before, verdict = float(self.loss_scale), self.judge(pairs)
        applied = verdict.finite or not self.skips
        factor = None
        if applied:
            pairs, factor = self.clipped(pairs, verdict.norm)
            update(pairs)
        self.move_scale(verdict)
        self.last_step = words.report(
            getattr(self.inner_optimizer, "last_step", None) if applied else None,
            [self.known_as(variable).name for _, variable in pairs],
            verdict.nonfinite,
            (before, float(self.loss_scale)),
            applied,
            None if verdict.norm is None else float(verdict.norm),
            factor,
        )
        self.count_skips(applied, verdict.nonfinite)

    def count_skips(self, applied: bool, nonfinite: list[str]) -> None:
        """Warn, or raise, if the scale is at its floor and nothing has helped."""
        skips = self.skipped_in_a_row = 0 if applied else self.skipped_in_a_row + 1
        quiet = self.at_floor == "ignore" or skips < self.floor_patience
        if quiet or not self.scale_is_at_floor():
            return
        error = words.stalled(skips, float(self.loss_scale), nonfinite, self.owner)
        if self.at_floor == "raise":
            raise error
        if skips == self.floor_patience:
            warnings.warn(str(error), stacklevel=4)

    def get_name(self) -> str:
        """Return the wrapped optimizer's name."""
        return self.inner_optimizer.get_name()

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the wrapped optimizer.

        # Quirk: docs/differences.md#loss-scale-slots. Strict: None.
        """
        return None if self.strict else self.inner_optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer; strict: none."""
        return [] if self.strict else self.inner_optimizer.get_slot_names()

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)
