"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median, paired_effects
from harness.tasks.cells import SeedCell, backend_of, grouped, same_seeds
from harness.tasks.mixed_precision_text.settings import Settings

__all__ = ["ARM", "Cell", "cells", "curves", "ends", "scales"]

ARM = ["method", "rate", "backend"]
"""The columns that name a row of every table."""

RATIO = ("ratio", "ratio_low", "ratio_high")


@dataclass(frozen=True)
class Cell(SeedCell[Settings]):
    """The runs that differ only in their seed, on one backend and device."""

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        names = (self.settings.label, self.settings.rate, self.backend)
        return dict(zip(ARM, names, strict=True))

    @property
    def bits(self) -> Floats:
        """The final held-out bits per byte, [seeds]; infinite if a run diverged."""
        return self.column("bits")[:, -1]


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [
        Cell(backend_of(group[0]), Settings(**group[0].config), group)
        for group in grouped(records)
    ]


def ends(of: Sequence[Cell]) -> pd.DataFrame:
    """The final held-out bits per byte, medians over the seeds with intervals.

    ``ratio`` = bits / bits of float32 on the same backend at its best rate, paired by
    seed; NaN without such runs. ``to_target``: steps to the target, infinite if a run
    does not reach it. ``best``: whether the rate has the fewest bits of this method and
    backend.
    """
    best = _best(of)
    rows = []
    for cell in of:
        method, _, backend = cell.labels.values()
        to_target = np.nan_to_num(cell.last("to_target"), nan=np.inf)
        rows.append(
            {
                **cell.labels,
                "dtype": cell.settings.dtype,
                "scale": cell.settings.scale,
                "masters": cell.settings.masters,
                "strict": cell.settings.strict,
                "plain": cell.settings.is_plain,
                "best": cell is best[method, backend],
                **bootstrap(median, cell.bits).named("bits"),
                **_over_float32(cell, best),
                **bootstrap(median, to_target).named("to_target"),
                "reached": int(np.isfinite(to_target).sum()),
                "seeds": len(cell.records),
            }
        )
    return pd.DataFrame(rows)


def scales(of: Sequence[Cell]) -> pd.DataFrame:
    """The values of each scale as log2, medians over the seeds.

    ``mean`` over all steps, the ``lowest`` and the final (``end``) scale; the number of
    ``skipped`` steps, of which ``injected`` had an infinite gradient.
    """
    rows = []
    for cell in of:
        rows.append(
            {
                **cell.labels,
                "scale": cell.settings.scale,
                "moves": cell.settings.scale not in ("none", "fixed"),
                **bootstrap(median, cell.last("mean_log2")).named("mean"),
                "lowest": float(np.median(_log2(cell.last("lowest")))),
                "end": float(np.median(_log2(cell.last("scale")))),
                "injected": cell.settings.overflows,
                "skipped": float(np.median(cell.last("skipped"))),
            }
        )
    return pd.DataFrame(rows)


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out bits and log2 of the scale over the steps, medians with intervals."""
    frames = []
    for cell in of:
        columns = {
            "step": cell.settings.measured_at,
            **bootstrap(median, cell.column("bits")).named("bits"),
            **bootstrap(median, _log2(cell.series("scale"))).named("scale_log2"),
        }
        frames.append(pd.DataFrame({**cell.labels, **columns}))
    return pd.concat(frames, ignore_index=True)


def _best(of: Sequence[Cell]) -> Mapping[tuple[str, str], Cell]:
    """Return the cell with the fewest bits of each method and backend."""
    best: dict[tuple[str, str], Cell] = {}
    for cell in sorted(of, key=lambda cell: float(np.median(cell.bits))):
        best.setdefault((cell.settings.label, cell.backend), cell)
    return best


def _over_float32(
    cell: Cell, best: Mapping[tuple[str, str], Cell]
) -> Mapping[str, Any]:
    for base in best.values():
        if base.settings.is_plain and base.backend == cell.backend:
            for mine, other in same_seeds(cell, base):
                effects = paired_effects(mine.bits, other.bits, "log ratio")
                interval = bootstrap(median, effects).named("ratio")
                return {name: float(np.exp(end)) for name, end in interval.items()}
    return dict.fromkeys(RATIO, np.nan)


def _log2(values: Floats) -> Floats:
    """Return log2 of scales; NaN becomes the lowest, because it skips every step."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(
            np.log2(values), nan=-np.inf, posinf=np.inf, neginf=-np.inf
        )
