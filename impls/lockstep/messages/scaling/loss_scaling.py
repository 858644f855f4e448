"""Messages and checks of the loss-scaling wrapper; re-exports those of the scales."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from lockstep.checks import CHOOSE, check_norm_limit, require
from lockstep.errors import (
    ScaleStalledError,
)
from lockstep.interface import StepReport
from lockstep.messages.scaling import refusals

__all__ = [
    "AT_FLOOR",
    "CLEAR",
    "PATIENCE",
    "SCALE_AGAIN",
    "WRAPPER",
    "ScaledStepReport",
    "check_at_floor",
    "check_clip_norm",
    "listed_gradients",
    "report",
    "stalled",
]

WRAPPER = "MixedPrecisionLossScaleOptimizer"
AT_FLOOR = ("warn", "raise", "ignore")
CLEAR = "take the step first, or call zero_grad() to begin again"
SCALE_AGAIN = "take the step first, or call scale_loss(loss) to begin again"
PATIENCE = 100
"""Default number of steps skipped in a row at the scale's floor that are a stall."""


class ScaledStepReport(StepReport):
    """A step report with the results of the finite check and of clipping.

    Attributes:
        nonfinite: names of the variables whose gradients were not finite.
        norm: the global norm of the unscaled gradients before clipping; None without
            ``clip_norm``, or if a gradient was not finite.
        clip_factor: the factor of clipping to ``clip_norm``, at most 1; None if
            ``norm`` is None or the step was skipped.
    """

    nonfinite: tuple[str, ...] = ()
    norm: float | None = None
    clip_factor: float | None = None

    @classmethod
    def of(
        cls,
        report: StepReport,
        nonfinite: Sequence[str],
        norm: float | None = None,
        clip_factor: float | None = None,
    ) -> ScaledStepReport:
        """Return ``report`` with these results."""
        scaled = cls(*report)
        scaled.nonfinite = tuple(nonfinite)
        scaled.norm, scaled.clip_factor = norm, clip_factor
        return scaled

    def __repr__(self) -> str:
        """Show every field; a tuple's own repr omits the added ones."""
        names = (*self._fields, "nonfinite", "norm", "clip_factor")
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({fields})"

    def _replace(self, **changes: Any) -> ScaledStepReport:
        """Return a changed copy that keeps the added fields, for outer wrappers."""
        copy = super()._replace(**changes)
        return self.of(copy, self.nonfinite, self.norm, self.clip_factor)


def listed_gradients(
    gradients: Any, owner: str, is_tensor: bool
) -> list[tuple[int, Any]]:
    """Return gradients to be unscaled, with their positions; raise if not a list."""
    if is_tensor or not isinstance(gradients, Iterable):
        got = type(gradients).__name__
        raise refusals.GRADIENTS_NOT_LISTED.error(owner=owner, got=got)
    listed = list(gradients)
    if any(type(gradient) is tuple for gradient in listed):
        raise refusals.GRADIENTS_IN_PAIRS.error(owner=owner)
    return list(enumerate(listed))


def check_at_floor(at_floor: Any, floor_patience: Any, owner: str = WRAPPER) -> None:
    """Raise unless both arguments of the wrapper ``owner`` are valid."""
    if at_floor not in AT_FLOOR:
        expected = " or ".join(map(repr, AT_FLOOR))
        raise refusals.BAD_AT_FLOOR.error(owner=owner, expected=expected, got=at_floor)
    fine = isinstance(floor_patience, int) and floor_patience >= 1
    require(owner, "floor_patience", floor_patience, fine, "an int >= 1")


def check_clip_norm(
    clip_norm: Any, arguments_unchecked: bool, owner: str = WRAPPER
) -> None:
    """Raise unless ``clip_norm`` of ``owner`` is None or a valid limit."""
    if clip_norm is None:
        return
    if arguments_unchecked:
        raise refusals.CLIP_NORM_UNDER_STRICT.error(owner=owner, got=clip_norm)
    remedy = f"{CHOOSE}, or leave it out"
    number = isinstance(clip_norm, Real)
    require(owner, "clip_norm", clip_norm, number, "a finite number > 0")
    check_norm_limit(owner, "clip_norm", clip_norm, remedy)


def report(
    inner: StepReport | None,
    names: Sequence[str],
    nonfinite: Sequence[str],
    scales: tuple[float, float],
    applied: bool | None = None,
    norm: float | None = None,
    clip_factor: float | None = None,
    absent: Sequence[str] = (),
) -> ScaledStepReport:
    """Return the report of a step: applied or skipped, non-finite tensors, the scale.

    Args:
        inner: the ``last_step`` of the wrapped optimizer if it was called and has one.
        names: the names of all variables of the step.
        nonfinite: the names of those with non-finite gradients.
        scales: the loss scale before and after the step.
        applied: whether the step was applied; None: if all gradients were finite. It is
            given if non-finite gradients are applied (strict, fixed scale), or if only
            their norm was not finite.
        norm: the global norm if it was computed.
        clip_factor: the factor of clipping, if the step was applied.
        absent: the names of those without a gradient; not needed with ``inner``.
    """
    endings = [moved("loss scale", *scales)]
    applied = not nonfinite if applied is None else applied
    if norm is not None and clip_factor is not None:
        endings.append(moved("norm", norm, norm * clip_factor))
    ending = "; ".join(endings)
    if not applied:
        reason = f"skipped, not finite: {named(nonfinite)}; {ending}"
        step = StepReport(False, reason, tuple(names))
    elif inner is not None:
        step = StepReport(*inner)._replace(reason=f"{inner.reason}; {ending}")
    else:
        outcome = f"applied, not finite: {named(nonfinite)}" if nonfinite else "finite"
        outcome += f", {len(absent)} absent" if absent else ""
        step = StepReport(True, f"{outcome}; {ending}", tuple(absent))
    return ScaledStepReport.of(step, nonfinite, norm, clip_factor)


def moved(what: str, before: float, after: float) -> str:
    """Return ``what`` with its value, or with both values if they differ."""
    first, second = f"{before:g}", f"{after:g}"
    return f"{what} {first}" + (f" -> {second}" if first != second else "")


def named(nonfinite: Sequence[str]) -> str:
    """Return the names, or the norm's description if every gradient was finite."""
    return ", ".join(nonfinite) or "the norm of all gradients"


def stalled(
    skips: int, scale: float, nonfinite: Sequence[str], owner: str = WRAPPER
) -> ScaleStalledError:
    """Build the error or warning for a run that skips every step at the floor."""
    names = named(nonfinite)
    return refusals.STALLED.error(
        skips=skips, scale=f"{scale:g}", names=names, owner=owner
    )
