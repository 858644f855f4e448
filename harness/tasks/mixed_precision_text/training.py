"""One run: train in a precision on a backend and measure at sparse checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.statistics import steps_to_target
from harness.tasks import backends
from harness.tasks.mixed_precision_text.data import make_plan
from harness.tasks.mixed_precision_text.settings import Settings

__all__ = ["Taken", "prepare", "train"]


class Taken(NamedTuple):
    """The result of an optimizer step: the next scale, and whether it was applied."""

    scale: float
    applied: bool


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if the held-out bits are not finite.

    Series: ``step``, ``bits`` (held-out bits per byte), ``scale`` (of the next step)
    and ``skipped`` (steps so far).
    Summary: the last value of each series, the values of :func:`of_scales`, and
    ``to_target``: the step of the first checkpoint with at most the target's bits, NaN
    without one.
    """
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    trainer = module.Trainer(settings, make_plan(settings, seed), device)
    taken: list[Taken] = []
    first = trainer.scale()
    rows: list[dict[str, float]] = []
    for start, stop in [(0, 0), *pairwise(settings.measured_at)]:
        taken += trainer.advance(start, stop) if stop else []
        rows.append(
            {
                "step": float(stop),
                "bits": trainer.measure(),
                "scale": taken[-1].scale if taken else first,
                "skipped": float(sum(not step.applied for step in taken)),
            }
        )
        if not np.isfinite(rows[-1]["bits"]):
            reason = f"the held-out bits were not finite after step {stop}"
            return Outcome("diverged", reason, _columns(rows))
    series = _columns(rows)
    scales = of_scales([first, *(step.scale for step in taken)])
    reached = steps_to_target(series["step"], series["bits"], settings.target)
    to_target = reached if np.isfinite(reached) else float("nan")
    return Outcome("ok", "", series, {**rows[-1], **scales, "to_target": to_target})


def of_scales(scales: Sequence[float]) -> dict[str, float]:
    """Return ``mean_log2`` of the scales of all steps, and the ``lowest`` one."""
    values = np.asarray(scales, float)
    usable = values[np.isfinite(values)]
    mean = float(np.log2(usable).mean())
    return {"mean_log2": mean, "lowest": float(usable.min())}


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
