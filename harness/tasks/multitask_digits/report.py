"""The tables of the experiment, computed from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import Judgement
from harness.records.record import Record
from harness.statistics import Floats, bootstrap, median, ratio_of_sums, relative_gap
from harness.tasks.absent_heads import laws
from harness.tasks.absent_heads.arms import WRAPPED
from harness.tasks.absent_heads.tables import (
    HEADS,
    against_zeros,
    comparison,
    head_row,
    matched,
    rate_of,
)
from harness.tasks.cells import SeedCell, backend_of, by_config, twins
from harness.tasks.checks import Check, Holds, all_hold
from harness.tasks.multitask_digits.task import METRICS, TASKS, Settings

PLACES = ("probe", "head")

LABELS = ["optimizer", "wrapper", "presence", "backend"]

MEASURED = ["measured", "low", "high", "law", "limit"]

RATIO = ["ratio", "ratio_low", "ratio_high"]

MOVEMENT = [*LABELS, *MEASURED, *RATIO, "head", "informative"]

SLOT = ["optimizer", "wrapper", "backend", "slot", "place"]

STATE = [*SLOT, "absent", "kept", "lowest", "highest", "law"]

LOST = ["lost_without", "lost_with", "seeds"]

LOSSES = [*LABELS, "task", "without", "with", *RATIO, *LOST]
"""The columns of the tables, also of tables without rows."""

POINTS_OF_A_CURVE = 17


@dataclass(frozen=True)
class Cell(SeedCell[Settings]):
    """The runs that differ only in their seed, on one backend and device."""

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that name the cell in every table."""
        return {
            "optimizer": self.settings.optimizer["name"],
            "wrapper": self.settings.wrapper,
            "presence": self.settings.presence,
            "backend": self.backend,
        }

    def finished(self) -> Cell:
        """Return the cell without the runs that diverged."""
        ended = [record for record in self.records if record.status == "ok"]
        return replace(self, records=ended)


def cells(records: Sequence[Record]) -> list[Cell]:
    """Group records that differ only in their seed, in order of appearance."""
    return [
        Cell(backend_of(group[0]), Settings(**group[0].config), group)
        for group in by_config(records)
    ]


def movement(of: Sequence[Cell]) -> pd.DataFrame:
    """Movement of the probes per informative step in the second half of training.

    ``measured`` is relative to the movement per step at p = 1, with an interval over
    seeds. ``law`` is for this window of a run from fresh state, ``limit`` for long
    runs. ``ratio`` = measured / law with its interval. ``head`` = path of the heads per
    informative step, median over seeds. ``informative`` = the number of informative
    steps per task and run.
    """
    rows = [row for cell in of if (row := _movement(cell.finished()))]
    return pd.DataFrame(rows, columns=MOVEMENT)


def _movement(cell: Cell) -> dict[str, Any] | None:
    settings, half = cell.settings, cell.settings.checkpoints // 2
    if not cell.records:
        return None
    moved, path, presences = (
        _sum_over_tasks(cell, kind)[:, [half, 2 * half]] @ [-1, 1]
        for kind in ("probe", "path", "informative")
    )
    if not np.sum(presences):
        return None
    unit = laws.unit(settings.optimizer)
    of_run = settings.optimizer, settings.wrapper, settings.presence
    law = laws.movement(*of_run, second_half(settings))
    # A run without any task has no ratio, and neither has a resample of such runs.
    some = presences > 0
    measured = bootstrap(ratio_of_sums, moved[some] / unit, presences[some])
    return {
        **cell.labels,
        **measured.columns("measured"),
        "law": law,
        "limit": laws.limit(*of_run),
        "ratio": measured.estimate / law,
        "ratio_low": measured.low / law,
        "ratio_high": measured.high / law,
        "head": float(np.median(path / np.maximum(presences, 1))),
        "informative": float(np.mean(presences)) / len(TASKS),
    }


def head_ratios(movement: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return how far a rare task's head moves relative to an always present task's.

    Optimizer -> wrapper -> ratio of the paths per informative step, at the smallest p
    on the first backend. Optimizers without both wrappers are left out.
    """
    first = first_backend(movement)
    always = first[first["presence"] == 1].set_index(["optimizer", "wrapper"])["head"]
    rarest = first[first["presence"] == first["presence"].min()]
    ratios = {}
    for name, rows in rarest.groupby("optimizer", sort=True):
        moved = {
            str(row["wrapper"]): float(row["head"] / always[name, row["wrapper"]])
            for _, row in rows.iterrows()
            if (name, row["wrapper"]) in always.index and row["presence"] < 1
        }
        if {"none", "default"} <= moved.keys():
            ratios[str(name)] = moved
    return ratios


def theory(of: Sequence[Cell]) -> pd.DataFrame:
    """The laws as curves over p, for the window of these runs and for long runs."""
    rows = []
    kinds = {str((c.settings.optimizer, c.settings.wrapper)): c.settings for c in of}
    lowest = min(cell.settings.presence for cell in of)
    points = np.geomspace(lowest, 1.0, POINTS_OF_A_CURVE).tolist()
    for settings, presence in product(kinds.values(), points):
        of_run = settings.optimizer, settings.wrapper, presence
        row = {
            "optimizer": settings.optimizer["name"],
            "wrapper": settings.wrapper,
            "presence": presence,
            "law": laws.movement(*of_run, second_half(settings)),
            "limit": laws.limit(*of_run),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def state(of: Sequence[Cell]) -> pd.DataFrame:
    """The remaining state of parity after some steps of absence.

    ``kept`` = norm of the slot / its norm before the absence, median over runs of all
    p; ``lowest`` and ``highest`` over the runs. ``law`` = the slot's decay ** absent if
    zeros are fed, 1 if they are left out.
    """
    rows = []
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in of:
        name = cell.settings.optimizer["name"]
        groups.setdefault((name, cell.settings.wrapper, cell.backend), []).append(cell)
    for (name, wrapper, backend), group in groups.items():
        slots = [slot for optimizer, slot in laws.RATES if optimizer == name]
        for slot, place in product(slots, PLACES):
            labels = {"optimizer": name, "wrapper": wrapper, "backend": backend}
            labels |= {"slot": slot, "place": place}
            rows += [{**labels, **row} for row in _kept(group, slot, place)]
    return pd.DataFrame(rows, columns=STATE)


def _kept(group: Sequence[Cell], slot: str, place: str) -> Iterator[dict[str, Any]]:
    settings = group[0].settings
    norms = [cell.finished().column(f"state/{place}/{slot}") for cell in group]
    departed = np.concatenate(norms)[:, settings.checkpoints :]
    departed = departed[departed[:, 0] > 0]
    fed = settings.wrapper not in WRAPPED
    decay = laws.decay(settings.optimizer, slot) if fed else 1.0
    for k, absent in enumerate([0, *settings.absence]):
        share = departed[:, k] / departed[:, 0]
        if len(share):
            row = {"kept": np.median(share), "lowest": share.min()}
            law = decay**absent
            yield {"absent": absent, **row, "highest": share.max(), "law": law}


def losses(of: Sequence[Cell]) -> pd.DataFrame:
    """Final held-out losses, without and with the wrapper.

    Medians over the seeds; ``ratio`` = without / with, paired by seed, median with its
    interval. Of the ``seeds``, ``lost_without`` and ``lost_with`` count runs that
    diverged or ended above the loss of the untrained net.
    """
    rows = []
    pairs = [pair for pair in against_zeros(of) if pair[1].settings.wrapper in WRAPPED]
    for (without, with_), task in product(pairs, TASKS):
        first, last = 0, without.settings.checkpoints
        a, b = (cell.column(f"loss/{task}") for cell in (without, with_))
        with np.errstate(invalid="ignore"):  # NaN if both runs diverged
            ratio = bootstrap(median, a[:, last] / b[:, last])
        row = {
            **with_.labels,
            "task": task,
            "without": np.median(a[:, last]),
            "with": np.median(b[:, last]),
            **ratio.named("ratio"),
            "lost_without": int((a[:, last] > a[:, first]).sum()),
            "lost_with": int((b[:, last] > b[:, first]).sum()),
            "seeds": len(a),
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=LOSSES)


def curves(of: Sequence[Cell]) -> pd.DataFrame:
    """Held-out loss over the steps: median over the seeds with its interval."""
    frames = []
    for cell, task in product(of, TASKS):
        end = cell.settings.checkpoints + 1
        interval = bootstrap(median, cell.column(f"loss/{task}")[:, :end])
        columns = interval.columns("median")
        steps = cell.settings.measured_at[:end]
        frames.append(
            pd.DataFrame({**cell.labels, "task": task, "step": steps, **columns})
        )
    return pd.concat(frames, ignore_index=True)


def backends(of: Sequence[Cell]) -> pd.DataFrame:
    """The difference of two backends on the same seeds, over the steps.

    ``median`` and ``highest`` over seeds and tasks of |a - b| / max(|a|, |b|), where a
    and b are held-out losses; ``against`` is the backend that ``backend`` is compared
    with.
    """
    frames = []
    for first, other in twins(of):
        apart, end = [], first.settings.checkpoints + 1
        for task in TASKS:
            a, b = (c.column(f"loss/{task}")[:, :end] for c in (first, other))
            apart.append(relative_gap(a, b))
        gaps = np.concatenate(apart)
        columns = {"median": np.median(gaps, axis=0), "highest": gaps.max(axis=0)}
        labels = {**other.labels, "against": first.backend}
        steps = first.settings.measured_at[:end]
        frames.append(pd.DataFrame({**labels, "step": steps, **columns}))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def heads(of: Sequence[Cell]) -> pd.DataFrame:
    """The ratio of movements of real heads, zeros over wrapper, and its law.

    Movements are of all heads of a run, in learning rates per informative step in the
    second half of training. Keras counts every step for Adam, as the original did.
    """
    rows = []
    for fed, wrapped in against_zeros(of):
        settings = wrapped.settings
        if settings.wrapper not in WRAPPED:
            continue
        counted = "strict" if fed.backend.startswith("keras3") else settings.wrapper
        of_run = settings.presence, second_half(settings)
        ends = [
            laws.movement(settings.optimizer, wrapper, *of_run)
            for wrapper in (fed.settings.wrapper, counted)
        ]
        read = METRICS["relative movement"].read
        law = ends[0] / ends[1]
        rows.append(head_row((fed, wrapped), "all tasks", of_run[0], read, law))
    return pd.DataFrame(rows, columns=HEADS)


def second_half(settings: Settings) -> laws.Window:
    """The window in which movement is measured; before it, the state warms up."""
    return settings.steps // 2, settings.steps


def _sum_over_tasks(cell: Cell, kind: str) -> Floats:
    columns = np.stack([cell.column(f"{kind}/{task}") for task in TASKS])
    return np.asarray(columns.sum(axis=0))


APART = ("optimizer.name", "wrapper", "presence")
"""The settings that distinguish runs in the tables."""

STATE_TOLERANCE = 1e-3
"""The relative tolerance of a slot's decay over the whole absence, in float32."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check the laws."""
    found = cells(records)
    if _have_own_rates(found):
        return Judgement(tables=_tuned(found))
    frames = {
        "movement": movement(found),
        "laws": theory(found),
        "state": state(found),
        "losses": losses(found),
        "curves": curves(found),
        "backends": backends(found),
    }
    return Judgement(tables=frames, checks=_checks(frames))


def _tuned(found: Sequence[Cell]) -> dict[str, pd.DataFrame]:
    """Return the tables of arms that each have their own best learning rate.

    Only the first backend is compared, because the rates are its own.
    """
    first = [cell for cell in found if cell.backend == found[0].backend]
    return {
        "comparison": comparison(first, lambda c: c.labels, METRICS["loss"].read),
        "losses": losses(first),
        "heads": heads(first),
        "curves": curves(first),
    }


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's movement with the published one, relative to each run's law.

    Runs of different length have different laws, so the intervals of the ratios must
    overlap or nearly overlap. Arms with their own learning rates are compared by their
    losses.
    """
    keys = ["optimizer", "wrapper", "presence", "backend"]
    are_tuned = "comparison" in published and "comparison" in own
    name = "comparison" if are_tuned else "movement"
    return matched(published[name], own[name], keys)


def _have_own_rates(found: Sequence[Cell]) -> bool:
    """Whether an optimizer has several learning rates."""
    rates = {(c.settings.optimizer["name"], rate_of(c)) for c in found}
    return len(rates) > len({name for name, _ in rates})


TOLERANCE = 0.05
"""The margin around a law that must contain the whole interval of the movement."""


def lawless(movement: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose interval is not fully within the margin of their law."""
    low, high = movement["ratio_low"], movement["ratio_high"]
    within = (low >= 1 - TOLERANCE) & (high <= 1 + TOLERANCE)
    return movement[~within & movement["law"].notna()]


def _checks(frames: Mapping[str, pd.DataFrame]) -> list[Check]:
    """Return each law with whether it holds on every backend."""
    movement, state = frames["movement"], frames["state"]
    return [
        (
            "a weight with a constant gradient (the probe) moves as far as its law "
            "predicts",
            not len(lawless(movement)) if len(movement) else None,
        ),
        ("while a task is absent, its state shrinks by its decay", _decays(state)),
        (
            "with the wrapper the state of an absent task keeps every bit",
            _keeps(state),
        ),
    ]


def _keeps(state: pd.DataFrame) -> Holds:
    """Whether every slot of every run keeps its bits with the wrapper."""
    rows = _after_absence(state, "default")
    return all_hold((rows["lowest"] == 1) & (rows["highest"] == 1))


def _decays(state: pd.DataFrame) -> Holds:
    """Whether slots shrink by their decay."""
    gap = np.abs(state["kept"] - state["law"])
    return all_hold(gap <= STATE_TOLERANCE * state["law"])


def _after_absence(state: pd.DataFrame, wrapper: str) -> pd.DataFrame:
    """Return the rows at the end of the absence."""
    last = state["absent"] == state["absent"].max()
    rows: pd.DataFrame = state[last & (state["wrapper"] == wrapper)]
    return rows
