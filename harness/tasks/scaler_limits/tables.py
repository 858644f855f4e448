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
"""(Backend, subject) -> the scaler's name, if the name depends on the backend."""


@dataclass(frozen=True)
class Observed:
    """One run, with the values that tables show.

    ``backend`` includes the device if it is not the CPU.
    """

    backend: str
    settings: Settings
    record: Record

    @property
    def scaler(self) -> str:
        """The name of the scaler."""
        ours = "Lockstep, raise" if self.settings.subject == RAISES else "Lockstep"
        backend = self.record.subject["backend"]
        return NAMES.get((backend, self.settings.subject), ours)

    @property
    def labels(self) -> dict[str, str]:
        """The columns that name the run in every table."""
        return {"scaler": self.scaler, "backend": self.backend}

    @property
    def is_peer(self) -> bool:
        """Whether the scaler is the framework's own."""
        return self.settings.subject == PEER

    @cached_property
    def scales(self) -> Floats:
        """The scale after each step, with infinities, which JSON cannot store."""
        infinite = np.asarray(self.record.series["infinite"]) > 0
        return np.where(infinite, np.inf, self.record.series["scale"])

    def during(self, name: str) -> Floats:
        """Return a series during the steps of the situation."""
        settings = self.settings
        column = np.asarray(self.record.series[name])
        return column[settings.before : settings.before + settings.limit]

    def after(self, name: str) -> Floats:
        """Return a series during the finite steps that follow; empty after an error."""
        settings = self.settings
        return np.asarray(self.record.series[name])[settings.before + settings.limit :]

    @property
    def reached(self) -> float:
        """The scale at the end of the situation."""
        settings = self.settings
        return float(self.scales[: settings.before + settings.limit][-1])

    @property
    def said(self) -> str:
        """The kind of message during the situation, if there was one."""
        if math.isnan(self.record.summary["told_at"]):
            return NOTHING
        return ERROR if self.record.summary["raised"] else WARNING

    @property
    def first(self) -> dict[str, object]:
        """The first applied step after the situation, from 1, and if it was right."""
        applied = np.flatnonzero(self.after("applied"))
        if not len(applied):
            return {"applied_again": math.nan, "right": None}
        right = bool(self.after("right")[applied[0]])
        return {"applied_again": int(applied[0]) + 1, "right": right}


def observed(records: Sequence[Record], situation: str) -> list[Observed]:
    """Return the runs of a situation, with ours before the peers."""
    runs = [Observed(backend_of(r), Settings(**r.config), r) for r in records]
    chosen = [run for run in runs if run.settings.situation == situation]
    return sorted(chosen, key=lambda run: run.is_peer)


def overflow(runs: Sequence[Observed]) -> pd.DataFrame:
    """The results of overflowing steps, and of the finite steps after them.

    ``scale``: the scale after the overflows. ``kept``: whether weights and slots kept
    their bits. ``applied_again``: the first finite step that was applied; ``right``:
    whether it was right. ``finite``: whether the final weights are finite. ``said``:
    the kind of message.
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
    """The first message word for word, and its ``step`` in the situation."""
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
    """The results of growth at every step, and of the finite steps after it.

    ``skipped`` counts steps with zero gradients. Of the later steps, ``wrong`` counts
    those that were applied but differ from SGD's, and ``left_out`` the skipped ones.
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
    """The same clipped steps at two scales.

    ``unequal``: values that differ in their bits, summed over the steps. ``longer``:
    gradients that the clip shortened. ``right``: steps that equal SGD's.
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

    ``after``: whether the step is after the situation. ``told``: whether the first
    message was at this step. ``finite``: whether the weights are finite.
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
    """Return rows as a table, which has its columns even without rows."""
    return pd.DataFrame(rows, columns=[*LABELS, *columns])
