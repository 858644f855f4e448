"""The base of both wrappers with a loss scale: skip steps and update the scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from lockstep.docstrings import documented
from lockstep.errors import warn_user
from lockstep.interface import (
    NO_GRADIENTS,
    NO_STEP,
    Array,
    Gradient,
    Rows,
    StepReport,
)
from lockstep.messages.base.pipeline import refuse_second_scale
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.messages.scaling.loss_scale import check_gradient_dtype
from lockstep.messages.scaling.loss_scaling import ScaledStepReport
from lockstep.quirks import Quirks
from lockstep.reference.base.pairs import Pairs
from lockstep.reference.clipping.clip_gradients import (
    clip_factor,
    global_norm,
    scale_gradients,
)
from lockstep.reference.optimizers.classes import Optimizer
from lockstep.reference.scaling.loss_scale import is_finite
from lockstep.reference.tensors.half import times, widen
from lockstep.reference.tensors.variable import Variable

__all__ = ["SkippingWrapper", "Verdict"]


class Verdict(NamedTuple):
    """Result of the finite check of a step.

    Attributes:
        nonfinite: names of the variables whose gradients are not finite.
        finite: whether all gradients, and their norm if it was computed, are finite.
        norm: the global norm, float32; None without clipping, or if a gradient is not
            finite.
        shown: inputs of an automatic scaler: has_nan and the largest magnitude.
    """

    nonfinite: list[str]
    finite: bool
    norm: Array | None = None
    shown: tuple[Any, Any] | None = None


class SkippingWrapper(Optimizer):
    """A wrapper that skips a step if its gradients are not finite.

    The scale is updated after the variables, so a step that raises does not change it.
    """

    owner: str
    inner_optimizer: Optimizer
    skipped_steps = 0
    is_unscaled: bool | None = None
    """Whether gradients were unscaled by hand; None if the loss was not scaled so."""

    def __init__(
        self,
        inner_optimizer: Optimizer,
        at_floor: str,
        floor_patience: int,
        clip_norm: float | None,
        quirks: Quirks,
    ) -> None:
        if not quirks.arguments_unchecked:
            refuse_second_scale(self.owner, inner_optimizer)
        self.inner_optimizer = inner_optimizer
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.clip_norm = clip_norm
        self.quirks = quirks
        self.skipped_steps = self.skipped_in_a_row = 0
        self.last_step: StepReport = ScaledStepReport(*NO_STEP)

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        raise NotImplementedError

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        raise NotImplementedError

    @property
    def _hides_slots(self) -> bool:
        """Whether slots and variables are hidden, as in the original."""
        raise NotImplementedError

    def move_scale(self, verdict: Verdict) -> None:
        """Update the scale after a step."""
        raise NotImplementedError

    def scale_is_at_floor(self) -> bool:
        """Return whether no overflow can lower the scale any more."""
        raise NotImplementedError

    def scale_gradient(self, gradient: Gradient) -> Gradient:
        """Return a gradient times the scale: the gradient of the scaled loss."""
        raise NotImplementedError

    def scaled(self, loss: Any) -> Any:
        """Return a loss times the scale; a loss that is not callable stays as it is."""
        if not callable(loss):
            return loss
        return lambda: [
            g(self.loss_scale) if callable(g) else self.scale_gradient(g)
            for g in loss()
        ]

    def reciprocal(self) -> np.float32:
        """Return 1 / scale, rounded to float32."""
        with np.errstate(all="ignore"):
            return np.float32(1) / self.loss_scale

    def scale_loss(self, loss: Any) -> Any:
        """Return a loss times the scale.

        A loss of the reference is a function that returns gradients. They are divided
        by the scale once, by :meth:`unscale_gradients` or by ``apply_gradients``,
        whichever is called first. A number is multiplied by the scale.

        Args:
            loss: a function that returns gradients, or a number.
        """
        product = self.scaled(loss) if callable(loss) else loss * self.loss_scale
        self.is_unscaled = False
        return product

    @documented
    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """Return the gradients of a scaled loss divided by the scale: g x fl32(1 / s).

        ...

        Args:
            gradients: the gradients of a list of variables.
        """
        is_array = isinstance(gradients, np.ndarray | Rows)
        listed = words.listed_gradients(gradients, self.owner, is_array)
        if self.is_unscaled:
            owner = f"{self.owner}.unscale_gradients"
            raise refusals.UNSCALED_TWICE.error(owner=owner, remedy=words.SCALE_AGAIN)
        for _, gradient in listed:
            if gradient is not None:
                values = gradient.values if isinstance(gradient, Rows) else gradient
                check_gradient_dtype(str(np.asarray(values).dtype))
        unscaled = [self.unscale(gradient) for _, gradient in listed]
        self.is_unscaled = True
        return unscaled

    def unscale(self, gradient: Gradient) -> Gradient:
        """Return a gradient times 1 / scale; half precision becomes float32."""
        if gradient is None:
            return None
        values = gradient.values if isinstance(gradient, Rows) else gradient
        wide = widen(gradient) if values.dtype == np.float16 else gradient
        return times(wide, self.reciprocal(), self.quirks.multitask_subnormals)

    def unscaled_once(self, pairs: Pairs) -> Pairs:
        """Return the pairs, unscaled if ``scale_loss`` was called since the last step.

        Gradients that were unscaled by hand stay as they are.
        """
        divides, self.is_unscaled = self.is_unscaled is False, None
        return [(self.unscale(g), v) for g, v in pairs] if divides else pairs

    def known_as(self, variable: Variable) -> Variable:
        """Return the user's variable for ``variable``, which may be its master."""
        return variable

    def judge(self, pairs: Pairs, strict_sums: bool = False) -> Verdict:
        """Check the gradients of a step, and their norm if it is to be clipped."""
        bad = [variable for g, variable in pairs if not is_finite(g, strict_sums)]
        names = [self.known_as(variable).name for variable in bad]
        if names or self.clip_norm is None:
            return Verdict(names, not names)
        present = [gradient for gradient, _ in pairs if gradient is not None]
        with np.errstate(over="ignore"):
            norm = global_norm(present, np.dtype(np.float32))
        return Verdict(names, bool(np.isfinite(norm)), norm)

    def clipped(self, pairs: Pairs, norm: Array | None) -> tuple[Pairs, float | None]:
        """Return the pairs, clipped to ``clip_norm``, and the clipping factor."""
        if self.clip_norm is None or norm is None:
            return pairs, None
        # Below the limit the factor is exactly 1: c (1 / c) is not 1 for every c.
        over = bool(norm > self.clip_norm)
        factor = clip_factor(norm, self.clip_norm) if over else np.ones_like(norm)
        gradients = scale_gradients([gradient for gradient, _ in pairs], factor)
        variables = [variable for _, variable in pairs]
        return list(zip(gradients, variables, strict=True)), float(factor)

    def apply_or_skip(self, pairs: Pairs, update: Callable[[Pairs], None]) -> None:
        """Call ``update`` with the clipped pairs unless the step is skipped."""
        before, verdict = float(self.loss_scale), self.judge(pairs)
        applied = verdict.finite or not self.skips
        factor = None
        if applied:
            pairs, factor = self.clipped(pairs, verdict.norm)
            update(pairs)
        else:
            self.inner_optimizer.note_no_gradients()
        self.move_scale(verdict)
        self.last_step = words.report(
            getattr(self.inner_optimizer, "last_step", None) if applied else None,
            [self.known_as(variable).name for _, variable in pairs],
            verdict.nonfinite,
            (before, float(self.loss_scale)),
            applied,
            None if verdict.norm is None else float(verdict.norm),
            factor,
            [self.known_as(variable).name for g, variable in pairs if g is None],
        )
        self.count_skips(applied, verdict.nonfinite)

    def count_skips(self, applied: bool, nonfinite: list[str]) -> None:
        """Count skips; warn or raise if the scale is at its floor and they go on."""
        skips = self.skipped_in_a_row = 0 if applied else self.skipped_in_a_row + 1
        self.skipped_steps += not applied
        quiet = self.at_floor == "ignore" or skips < self.floor_patience
        if quiet or not self.scale_is_at_floor():
            return
        error = words.stalled(skips, float(self.loss_scale), nonfinite, self.owner)
        if self.at_floor == "raise":
            raise error
        if skips == self.floor_patience:
            warn_user(str(error))

    def counts(self) -> list[Array]:
        """Return the number of steps skipped in a row, and of all skipped steps."""
        return [np.asarray(self.skipped_in_a_row), np.asarray(self.skipped_steps)]

    def note_no_gradients(self) -> None:
        """Set ``last_step`` to ``NO_GRADIENTS``, also in the wrappers inside."""
        self.last_step = ScaledStepReport(*NO_GRADIENTS)
        self.inner_optimizer.note_no_gradients()

    def get_name(self) -> str:
        """Return the wrapped optimizer's name."""
        return self.inner_optimizer.get_name()

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the wrapped optimizer; strict: None."""
        hidden = self._hides_slots
        return None if hidden else self.inner_optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer; strict: none."""
        hidden = self._hides_slots
        return [] if hidden else self.inner_optimizer.get_slot_names()

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)
