"""The results of a step as numbers by tag, for TensorBoard and other loggers.

Every wrapper that runs eagerly has ``step_numbers()``. A stack has the tags of all its
wrappers. A tag that ``optimize_loss`` also has means the same there.
"""

from __future__ import annotations

from typing import Any

from lockstep.checks import require
from lockstep.interface import StepReport
from lockstep.messages.step import refusals

__all__ = [
    "CENTER_ROUNDS",
    "CLIPPED_ROWS",
    "ENDED_ROUND",
    "LOCAL_STEP",
    "LOSS_SCALE",
    "PUSHED_BYTES",
    "ROWS",
    "SKIPPED_IN_A_ROW",
    "SKIPPED_STEPS",
    "STALENESS",
    "check_target",
    "numbers_of",
]

LOSS_SCALE = "loss_scale"
SKIPPED_STEPS, SKIPPED_IN_A_ROW = "skipped_steps", "skipped_in_a_row"
NORM, CLIP_FACTOR = "global_gradient_norm", "clip_factor"
ROWS, CLIPPED_ROWS = "rows", "clipped_rows"
LOCAL_STEP, ENDED_ROUND = "local_step", "ended_round"
CENTER_ROUNDS, STALENESS = "center_rounds", "staleness"
PUSHED_BYTES = "pushed_bytes"


def numbers_of(report: StepReport) -> dict[str, float]:
    """Return the numbers of a report.

    These are ``applied`` (0 or 1), ``skipped_variables`` and, if they were computed,
    ``global_gradient_norm`` and ``clip_factor``.
    """
    numbers: dict[str, float] = {
        "applied": int(report.applied),
        "skipped_variables": len(report.skipped),
    }
    for tag, value in (
        (NORM, getattr(report, "norm", None)),
        (CLIP_FACTOR, getattr(report, "clip_factor", None)),
    ):
        if value is not None:
            numbers[tag] = value
    return numbers


def check_target(owner: str, target: Any, every: Any, start: Any) -> None:
    """Raise for a target that cannot receive numbers, and for invalid steps."""
    writes = callable(getattr(target, "add_scalar", None)) or callable(target)
    if isinstance(target, type) or not (target is None or writes):
        raise refusals.BAD_TARGET.error(owner=owner, got=target)
    for name, value, least in (("every", every, 1), ("start", start, 0)):
        whole = isinstance(value, int) and not isinstance(value, bool)
        fine = whole and value >= least
        require(owner, name, value, fine, f"an int >= {least}")
