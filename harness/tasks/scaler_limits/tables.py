"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import Floats
from harness.tasks.cells import backend_of
from harness.tasks.scaler_limits.settings import ON_DEVICE, PEER, RAISES, Settings

__all__ = [
    "ERROR",
    "NOTHING",
    "WARNING",
    "Observed",
    "clipping",
    "observed",
    "overflow",
    "sentences",
    "trajectories",
    "zeros",
]

NOTHING, WARNING, ERROR = "nothing", "warning", "error"

LABELS = ("scaler", "backend")

NAMES = {
    ("pytorch", ON_DEVICE): "Lockstep, capturable",
    ("pytorch", PEER): "torch.amp.GradScaler",
    ("tf", ON_DEVICE): "Lockstep, tf.function",
    ("tf", PEER): "keras LossScaleOptimizer",
}
"""The names of scalers by backend; any other scaler has one name on all backends."""


@dataclass(frozen=True)
class Observed:
    """One run with the questions that tables ask it.

    ``backend`` includes the device where that is not the CPU.
    """

    backend: str
    settings: Settings
    record: Record

    @property
    def scaler(self) -> str:
        """What the scaler is called."""
        ours = "Lockstep, raise" if self.settings.subject == RAISES else "Lockstep"
        backend = self.record.subject["backend"]
        return NAMES.get((backend, self.settings.subject), ours)

    @property
    def labels(self) -> dict[str, str]:
        """The columns that name the run in every table."""
        return {"scaler": self.scaler, "backend": self.backend}

    @property
    def is_peer(self) -> bool:
        """Whether the scaler is the framework's."""
        return self.settings.subject == PEER

    @cached_property
    def scales(self) -> Floats:
        """The scale after each step; infinity, which JSON cannot say, is back."""
        infinite = np.asarray(self.record.series["infinite"]) > 0
        return np.where(infinite, np.inf, self.record.series["scale"])

    def during(self, name: str) -> Floats:
        """Return a series in the steps of the situation."""
        settings = self.settings
        column = np.asarray(self.record.series[name])
        return column[settings.before : settings.before + settings.limit]

    def after(self, name: str) -> Floats:
        """Return a series in the finite steps that follow; none after an error."""
        settings = self.settings
        return np.asarray(self.record.series[name])[settings.before + settings.limit :]

    @property
    def reached(self) -> float:
        """The scale at the end of the situation."""
        settings = self.settings
        return float(self.scales[: settings.before + settings.limit][-1])

    @property
    def said(self) -> str:
        """Whether something was said, and how."""
        if math.isnan(self.record.summary["told_at"]):
            return NOTHING
        return ERROR if self.record.summary["raised"] else WARNING

    @property
    def first(self) -> dict[str, object]:
        """The first finite step that was applied afterwards, from 1, and if right."""
        applied = np.flatnonzero(self.after("applied"))
        if not len(applied):
            return {"applied_again": math.nan, "right": None}
        right = bool(self.after("right")[applied[0]])
        return {"applied_again": int(applied[0]) + 1, "right": right}


def observed(records: Sequence[Record], situation: str) -> list[Observed]:
    """Return the runs of a situation: ours before the peers, backend by backend."""
    runs = [Observed(backend_of(r), Settings(**r.config), r) for r in records]
    chosen = [run for run in runs if run.settings.situation == situation]
    return sorted(chosen, key=lambda run: run.is_peer)


def overflow(runs: Sequence[Observed]) -> pd.DataFrame:
    """What is left of a run of overflowing steps, and of the finite ones after it.

    ``scale`` that was reached; ``kept``: no bit of weights and slots changed;
    ``applied_again``: the first finite step that was applied; whether it was ``right``;
    ``finite``: the weights, at the end; what was ``said``.
    """
    rows = []
    for run in runs:
        row = {
            **run.labels,
            "scale": run.reached,
            "kept": not run.during("applied").any(),
            **run.first,
            "finite": bool(run.record.series["finite"][-1]),
            "said": run.said,
        }
        rows.append(row)
    columns = ["scale", "kept", "applied_again", "right", "finite", "said"]
    return _frame(rows, columns)


def sentences(runs: Sequence[Observed]) -> pd.DataFrame:
    """What was said first, word for word, and the ``step`` of the situation it was."""
    rows = [
        {
            **run.labels,
            "step": run.record.summary["told_at"],
            "sentence": run.record.reason or "–",
        }
        for run in runs
    ]
    return _frame(rows, ["step", "sentence"])


def zeros(runs: Sequence[Observed]) -> pd.DataFrame:
    """What growth at every step leads to, and what the steps after it do.

    ``skipped`` of the steps without gradients; of the steps with gradients ``wrong``
    ones, which were applied and are not SGD's, and ``left_out``.
    """
    rows = []
    for run in runs:
        applied = run.after("applied")
        row = {
            **run.labels,
            "scale": run.reached,
            "skipped": int((run.during("applied") == 0).sum()),
            "applied_again": run.first["applied_again"],
            "wrong": int((applied > run.after("right")).sum()),
            "left_out": int((applied == 0).sum()),
        }
        rows.append(row)
    columns = ["scale", "skipped", "applied_again", "wrong", "left_out"]
    return _frame(rows, columns)


def clipping(runs: Sequence[Observed]) -> pd.DataFrame:
    """The same clipped steps at two scales: ``unequal`` numbers, summed over steps.

    ``longer``: gradients that the clip shortened; ``right`` steps are SGD's on them.
    """
    rows = []
    for run in runs:
        series = run.record.series
        row = {
            **run.labels,
            "steps": len(series["step"]),
            "longer": int(run.record.summary["longer"]),
            "right": int(sum(series["right"])),
            "unequal": int(sum(series["unequal"])),
        }
        rows.append(row)
    return _frame(rows, ["steps", "longer", "right", "unequal"])


def trajectories(runs: Sequence[Observed]) -> pd.DataFrame:
    """The scale after each step, with the step counted from the situation's first.

    ``after``: the finite steps that follow it; ``told``: at this step something was
    said; ``finite``: the weights.
    """
    frames = []
    for run in runs:
        step = np.asarray(run.record.series["step"]) - run.settings.before
        columns = {
            "step": step.astype(int),
            "scale": run.scales,
            "after": step > run.settings.limit,
            "told": step == run.record.summary["told_at"],
            "finite": np.asarray(run.record.series["finite"]) > 0,
        }
        labels = {"situation": run.settings.situation, **run.labels}
        frames.append(pd.DataFrame({**labels, "peer": run.is_peer, **columns}))
    if not frames:
        names = ("step", "scale", "after", "told", "finite")
        return pd.DataFrame(columns=["situation", *LABELS, "peer", *names])
    return pd.concat(frames, ignore_index=True)


def _frame(rows: Sequence[dict[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Return rows as a table; it has its columns without a row as well."""
    return pd.DataFrame(rows, columns=[*LABELS, *columns])
