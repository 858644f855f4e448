"""One run: train in a precision on a backend and measure at sparse checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.deep_digits import laws
from harness.tasks.deep_digits.data import Plan, make_plan
from harness.tasks.deep_digits.settings import Settings
from lockstep.interface import Array

__all__ = ["Taken", "prepare", "train"]


class Taken(NamedTuple):
    """The result of an optimizer step: the next scale, and whether it was applied."""

    scale: float
    applied: bool


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run; it has diverged if a held-out loss is not finite.

    Series: ``step``, ``loss`` (held out, nats), ``accuracy`` (held out, a share),
    ``scale`` (of the next step), ``skipped`` (steps so far), ``zero/weights`` and
    ``zero/activations`` (the share of zero gradients of one batch).
    Summary: the last value of each series, the values of :func:`around` and, in
    float32, the counts of :func:`harness.tasks.deep_digits.laws.count`.
    """
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    plan = make_plan(settings, seed)
    trainer = module.Trainer(settings, plan, device)
    taken: list[Taken] = []
    scales = [trainer.scale()]
    rows: list[dict[str, float]] = []
    counts: dict[str, int] = {}
    for start, stop in [(0, 0), *pairwise(settings.measured_at)]:
        taken += trainer.advance(start, stop) if stop else []
        skipped = sum(not step.applied for step in taken)
        gradients = _gradients(trainer, plan, stop)
        loss, accuracy = trainer.measure()
        scale = taken[-1].scale if taken else scales[0]
        rows.append(
            {
                "step": float(stop),
                "loss": loss,
                "accuracy": accuracy,
                "scale": scale,
                "skipped": float(skipped),
                **{
                    f"zero/{kind}": laws.zeros(each) for kind, each in gradients.items()
                },
            }
        )
        if settings.dtype == "float32":
            laws.count(counts, gradients)
        if not np.isfinite(loss):
            reason = f"a held-out loss was not finite after step {stop}"
            return Outcome("diverged", reason, _columns(rows))
    scales += [step.scale for step in taken]
    summary = {**rows[-1], **around(scales, settings.overflow), **counts}
    return Outcome("ok", "", _columns(rows), summary)


def around(scales: Sequence[float], overflow: int) -> dict[str, float]:
    """Return the reaction of a scale to one overflow; ``scales[k]`` is for step k.

    The scale ``before`` and ``after`` the step and its ``lowest`` value since;
    ``mean_log2`` of all steps; and ``recovery``, the steps from the overflow until the
    scale is above half of ``before`` again: 0 if it did not fall, NaN if it does not
    recover.
    """
    values = np.asarray(scales, float)
    before, later = values[overflow], values[overflow + 1 :]
    back = np.flatnonzero(later > before / 2)
    usable = values[np.isfinite(values)]
    return {
        "before": float(before),
        "after": float(later[0]),
        "lowest": float(later.min()),
        "mean_log2": float(np.log2(usable).mean()),
        "recovery": float(back[0]) if len(back) else float("nan"),
    }


def _gradients(trainer: Any, plan: Plan, step: int) -> dict[str, Array]:
    """Return the flat gradients of weights and activations for a step's batch."""
    rows = plan.batches[min(step, len(plan.batches) - 1)]
    gradients: dict[str, Array] = trainer.gradients(rows, plan.factors[0])
    return gradients


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
