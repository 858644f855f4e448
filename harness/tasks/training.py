"""Trainers that runs share, and the loop of a run that is measured at checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from harness.records.record import Outcome

MADE: dict[str, Any] = {}
"""The trainers so far."""


def once(recipe: object, make: Callable[[], Any]) -> Any:
    """Return what was made of an equal recipe, so that a trainer compiles once."""
    key = repr(recipe)
    if key not in MADE:
        MADE[key] = make()
    return MADE[key]


def walk(
    measured_at: Sequence[int],
    advance: Callable[[int, int], object],
    measure: Callable[[int], Mapping[str, float]],
    losses: Sequence[str] = ("loss",),
) -> Outcome:
    """Train and measure; the run has diverged if a loss is not finite.

    Args:
        measured_at: the numbers of steps after which the run is measured, from 0 on.
        advance: takes the steps ``start``, ..., ``stop`` - 1.
        measure: returns the values of a checkpoint by name; each becomes a series.
        losses: the names of the losses.
    """
    rows: list[Mapping[str, float]] = []
    reason = ""
    for start, stop in pairwise([0, *measured_at]):
        if stop:
            advance(start, stop)
        with np.errstate(all="ignore"):  # a run that diverges is measured as well
            rows.append({"step": stop, **measure(stop)})
        if not all(np.isfinite(rows[-1][name]) for name in losses):
            reason = f"a loss was not finite after step {stop}"
            break
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return Outcome("diverged" if reason else "ok", reason, columns)
