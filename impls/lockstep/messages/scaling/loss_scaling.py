"""Messages and checks of the loss-scaling wrapper; re-exports those of the scales."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from lockstep.checks import CHOOSE, check_norm_limit, require
from lockstep.errors import (
    ScaleStalledError,
)
from lockstep.messages.scaling import refusals
from lockstep.scalers import ScaledStepReport, report

__all__ = [
    "AT_FLOOR",
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
SCALE_AGAIN = "take the step first, or call scale_loss(loss) to begin again"
PATIENCE = 100
"""Default number of steps skipped in a row at the scale's floor that are a stall."""


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
