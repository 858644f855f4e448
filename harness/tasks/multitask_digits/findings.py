"""Tables of final losses and of the movement of heads, without and with wrapper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.judgement.finding import Judgement
from harness.records.record import Record
from harness.tasks.absent_heads.tables import comparison, matched, rate_of
from harness.tasks.checks import Check, Holds, all_hold
from harness.tasks.multitask_digits import tables
from harness.tasks.multitask_digits.metrics import METRICS

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("optimizer.name", "wrapper", "presence")
"""The settings that distinguish runs in the tables."""

STATE_TOLERANCE = 1e-3
"""The relative tolerance of a slot's decay over the whole absence, in float32."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check the laws."""
    cells = tables.cells(records)
    if _have_own_rates(cells):
        return Judgement(tables=_tuned(cells))
    frames = {
        "movement": tables.movement(cells),
        "laws": tables.theory(cells),
        "state": tables.state(cells),
        "losses": tables.losses(cells),
        "curves": tables.curves(cells),
        "backends": tables.backends(cells),
    }
    return Judgement(tables=frames, checks=_checks(frames))


def _tuned(cells: Sequence[tables.Cell]) -> dict[str, pd.DataFrame]:
    """Return the tables of arms that each have their own best learning rate.

    Only the first backend is compared, because the rates are its own.
    """
    first = [cell for cell in cells if cell.backend == cells[0].backend]
    return {
        "comparison": comparison(first, lambda c: c.labels, METRICS["loss"].read),
        "losses": tables.losses(first),
        "heads": tables.heads(first),
        "curves": tables.curves(first),
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


def _have_own_rates(cells: Sequence[tables.Cell]) -> bool:
    """Whether an optimizer has several learning rates."""
    rates = {(c.settings.optimizer["name"], rate_of(c)) for c in cells}
    return len(rates) > len({name for name, _ in rates})


# -- laws ------------------------------------------------------------------------------


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


# -- sentences -------------------------------------------------------------------------


# -- rows ------------------------------------------------------------------------------


def _after_absence(state: pd.DataFrame, wrapper: str) -> pd.DataFrame:
    """Return the rows at the end of the absence."""
    last = state["absent"] == state["absent"].max()
    rows: pd.DataFrame = state[last & (state["wrapper"] == wrapper)]
    return rows
