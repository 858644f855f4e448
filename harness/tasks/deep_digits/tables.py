"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median, paired_effects
from harness.tasks.cells import SeedCell, backend_of, grouped, same_seeds
from harness.tasks.deep_digits import laws
from harness.tasks.deep_digits.settings import Settings

__all__ = [
    "KINDS",
    "Cell",
    "cells",
    "curves",
    "histograms",
    "losses",
    "scales",
    "simulation",
    "underflow",
]

KINDS = ("weights", "activations")
"""The kinds of counted gradients."""

LARGEST_SCALE = 45
"""log2 of the largest scale whose flushed share is computed."""


@dataclass(frozen=True)
class Cell(SeedCell[Settings]):
    """The runs that differ only in their seed, on one backend and device."""

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        return {"method": self.settings.label, "backend": self.backend}


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [
        Cell(backend_of(group[0]), Settings(**group[0].config), group)
        for group in grouped(records)
    ]


def losses(of: Sequence[Cell]) -> pd.DataFrame:
    """The final held-out loss and accuracy, medians over the seeds with intervals.

    ``ratio`` = loss / loss of float32 without a scale on the same backend, paired by
    seed, median with its interval; NaN without such a run.
    """
    rows = []
    for cell in of:
        loss = cell.column("loss")[:, -1]
        accuracy = np.nan_to_num(cell.last("accuracy"), nan=0.0)
        rows.append(
            {
                **cell.labels,
                "dtype": cell.settings.dtype,
                "scale": cell.settings.scale,
                **_interval("loss", loss),
                **_interval("accuracy", accuracy),
                **_over_float32(cell, of),
                "seeds": len(cell.records),
            }
        )
    return pd.DataFrame(rows)


def _over_float32(cell: Cell, of: Sequence[Cell]) -> dict[str, Any]:
    for base in of:
        plain = base.settings.dtype == "float32" and base.settings.scale == "none"
        if plain and base.backend == cell.backend:
            for mine, other in same_seeds(cell, base):
                ends, others = (each.column("loss")[:, -1] for each in (mine, other))
                effects = paired_effects(ends, others, "log ratio")
                interval = _interval("ratio", effects)
                return {name: np.exp(value) for name, value in interval.items()}
    return dict.fromkeys(("ratio", "ratio_low", "ratio_high"), np.nan)


def scales(of: Sequence[Cell]) -> pd.DataFrame:
    """The values of each scale, medians over the seeds.

    ``mean_log2`` is over all steps; ``before`` and ``lowest`` are the scale's log2
    around the injected overflow. ``recovery`` is in steps, infinite if not within the
    run; ``unrecovered`` counts such runs. ``skipped`` counts steps. ``zero_KIND`` is
    the share of zero gradients over all checkpoints. ``moves`` is whether the scale is
    dynamic. ``pinned`` counts runs with the scale at 1 already before the overflow,
    and ``nan`` runs with a final scale of NaN.
    """
    rows = []
    for cell in of:
        recovery = np.nan_to_num(cell.last("recovery"), nan=np.inf)
        moves = cell.settings.scale not in ("none", "fixed")
        pinned = moves & (cell.last("before") == 1)
        rows.append(
            {
                **cell.labels,
                **_interval("mean_log2", cell.last("mean_log2")),
                "before": np.median(_log2(cell.last("before"))),
                "lowest": np.median(_log2(cell.last("lowest"))),
                "moves": moves,
                "recovery": np.median(recovery),
                "unrecovered": int(np.isinf(recovery).sum()),
                "skipped": np.median(cell.last("skipped")),
                **{f"zero_{k}": _share(cell.series(f"zero/{k}")) for k in KINDS},
                "runs": len(cell.records),
                "pinned": int(pinned.sum()),
                "nan": int(np.isnan(cell.last("scale")).sum()),
            }
        )
    return pd.DataFrame(rows)


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out loss and log2 of the scale over the steps, medians with intervals."""
    frames = []
    for cell in of:
        columns = {
            "step": cell.settings.measured_at,
            **_interval("loss", cell.column("loss")),
            **_interval("scale_log2", _log2(cell.series("scale"))),
        }
        frames.append(pd.DataFrame({**cell.labels, **columns}))
    return pd.concat(frames, ignore_index=True)


def histograms(of: Sequence[Cell]) -> pd.DataFrame:
    """The share of float32 gradients in each [2^e, 2^(e+1)), on the first backend."""
    frames = []
    for kind in KINDS:
        counted = _counted(of, kind)
        for exponents, _ in counted[:1]:
            counts = np.sum([c for _, c in counted], axis=0)
            columns = {"log2": exponents, "share": counts / counts.sum()}
            frames.append(pd.DataFrame({"gradients": kind, **columns}))
    return _stacked(frames, ["gradients", "log2", "share"])


def underflow(of: Sequence[Cell]) -> pd.DataFrame:
    """The share of float32 gradients that become 0 in float16 with a scale 2^k."""
    frames = []
    powers = np.arange(LARGEST_SCALE + 1)
    for kind in KINDS:
        shares = [
            [laws.flushed(exponents, counts, float(power)) for power in powers]
            for exponents, counts in _counted(of, kind)
        ]
        if shares:
            columns = {"scale_log2": powers, **_interval("flushed", shares)}
            frames.append(pd.DataFrame({"gradients": kind, **columns}))
    names = ["flushed", "flushed_low", "flushed_high"]
    return _stacked(frames, ["gradients", "scale_log2", *names])


def simulation(of: Sequence[Cell]) -> pd.DataFrame:
    """The effect of one infinity on each scaler in a simulation without training.

    Each scaler of the NumPy reference gets 22,000 gradients of one size, which is the
    largest power of two that the gradients of this net reach. Empty if no float32 run
    has counted them.
    """
    rows = []
    amax = [2.0 ** _highest(counted) for counted in _counted(of, "weights")]
    for cell in (cell for cell in of if amax and cell.backend == of[0].backend):
        settings = cell.settings
        if settings.scale in ("none", "fixed"):
            continue
        of_scaler = tuple(settings.arguments.items()), settings.strict
        effect = laws.recovery(settings.scale, *of_scaler, max(amax))
        row = {"method": settings.label, "amax": max(amax), **effect._asdict()}
        rows.append(row)
    columns = ["method", "amax", *laws.Recovery._fields]
    return pd.DataFrame(rows, columns=columns)


def _stacked(frames: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    """Concatenate frames; without frames, return an empty one with these columns."""
    if not frames:
        return pd.DataFrame(columns=list(columns))
    return pd.concat(frames, ignore_index=True)


def _counted(of: Sequence[Cell], kind: str) -> list[tuple[Floats, Floats]]:
    """Return the non-empty histograms of the float32 runs of the first backend."""
    cells_of = [cell for cell in of if cell.settings.dtype == "float32"]
    runs = [record for cell in cells_of[:1] for record in cell.records]
    counted = [laws.histogram(r.summary, kind) for r in runs if r.status == "ok"]
    return [(exponents, counts) for exponents, counts in counted if counts.sum()]


def _highest(counted: tuple[Floats, Floats]) -> float:
    exponents, counts = counted
    return float(exponents[counts > 0].max())


def _interval(name: str, samples: Any) -> dict[str, Any]:
    return bootstrap(median, samples).named(name)


def _log2(scales: Floats) -> Floats:
    """Return log2 of scales; NaN becomes the lowest, because it skips every step."""
    with np.errstate(divide="ignore"):
        logarithms = np.log2(scales)
    finite: Floats = np.nan_to_num(
        logarithms, nan=-np.inf, posinf=np.inf, neginf=-np.inf
    )
    return finite


def _share(column: Floats) -> float:
    finite = column[np.isfinite(column)]
    return float(np.mean(finite)) if finite.size else np.nan
