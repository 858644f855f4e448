"""One run: record the behaviour of a scaler at its limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from harness.records.record import Outcome
from harness.tasks import backends
from harness.tasks.scaler_limits import batches as plans
from harness.tasks.scaler_limits.law import Law
from harness.tasks.scaler_limits.listen import listening
from harness.tasks.scaler_limits.settings import Settings
from harness.tasks.scaler_limits.subject import Scaling, Subject, of_situation

__all__ = ["clip", "observe", "prepare", "train"]


def prepare(backend: str, device: str) -> None:
    """Import the backend's framework and test the device; raise if either fails."""
    backends.prepare(__package__, backend, device)


def train(config: Mapping[str, Any], seed: int, backend: str, device: str) -> Outcome:
    """Do one run. The first message, if there was one, is the outcome's reason."""
    settings = Settings(**config)
    module = backends.model(__package__, backend)
    batches = plans.make(settings, seed)
    if settings.situation != "clipping":
        subject = module.make(settings, of_situation(settings), device)
        return observe(settings, subject, batches)
    scalings = [
        Scaling(scale, settings.after + 1, settings.clip_norm)
        for scale in (1.0, settings.large)
    ]
    pair = [module.make(settings, scaling, device) for scaling in scalings]
    return clip(settings, pair, batches)


def observe(settings: Settings, subject: Subject, batches: plans.Batches) -> Outcome:
    """Take all steps until the end or an error.

    Series, one entry per step: ``step``; ``scale`` after it; ``infinite``, whether the
    scale is infinite, which JSON cannot store; ``applied``, whether a bit of weights or
    slots changed; ``right``, see :class:`Law`; ``finite``, whether the weights are
    finite.

    Summary: ``told_at``, the step of the situation with the first message (NaN without
    one), and ``raised``, whether it ended in an error.
    """
    columns = ("step", "scale", "infinite", "applied", "right", "finite")
    series: dict[str, list[float]] = {name: [] for name in columns}
    told_at, said, raised = math.nan, "", False
    law = Law(settings)
    for number, batch in enumerate(batches, start=1):
        weights, before = subject.weights(), state(subject)
        heard, raised = take(subject, batch)
        # Messages of a framework's start have nothing to do with scales.
        if heard and not said and number > settings.before:
            said, told_at = " ".join(heard), number - settings.before
        applied = unequal(before, state(subject)) > 0
        right = applied and law.holds(batch, weights, subject.weights())
        finite = all(np.isfinite(weight).all() for weight in subject.weights())
        scale = subject.scale()
        row = (number, scale, math.isinf(scale), applied, right, finite)
        for name, value in zip(columns, row, strict=True):
            series[name].append(float(value))
        if raised:
            break
    return Outcome("ok", said, series, {"told_at": told_at, "raised": float(raised)})


def take(subject: Subject, batch: plans.Batches) -> tuple[list[str], bool]:
    """Take one step; return its messages, and whether an error ended it."""
    errors = []
    with listening() as heard:
        try:
            subject.step(batch)
        except RuntimeError as error:
            errors.append(str(error))
    return [*heard, *errors], bool(errors)


def clip(
    settings: Settings, pair: Sequence[Subject], batches: plans.Batches
) -> Outcome:
    """Take the same clipped steps at two scales and compare the results.

    Series: ``step``; ``unequal``, the number of values in weights and slots whose bits
    differ; ``right``, whether the step at the smaller scale was right. Summary:
    ``longer``, the number of gradients longer than the limit.
    """
    series: dict[str, list[float]] = {"step": [], "unequal": [], "right": []}
    law = Law(settings, settings.clip_norm)
    for number, batch in enumerate(batches, start=1):
        before = pair[0].weights()
        for subject in pair:
            subject.step(batch)
        series["step"].append(float(number))
        series["unequal"].append(float(unequal(state(pair[0]), state(pair[1]))))
        series["right"].append(float(law.holds(batch, before, pair[0].weights())))
    longer = plans.longer_than(batches, settings.clip_norm)
    return Outcome("ok", "", series, {"longer": longer})


def state(subject: Subject) -> list[Any]:
    """Return weights and slots; missing slots are zero."""
    slots = subject.slots() or [np.zeros_like(weight) for weight in subject.weights()]
    return [*subject.weights(), *slots]


def unequal(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Count the float32 values whose bits differ."""
    pairs = zip(first, second, strict=True)
    return sum(int((a.view(np.uint32) != b.view(np.uint32)).sum()) for a, b in pairs)
