"""Compute the answer: final losses and movement of heads, without and with wrapper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import NO_ANSWER, Judgement
from harness.records.record import Record
from harness.tasks.absent_heads.sentences import of_ranges
from harness.tasks.absent_heads.tables import matched, rate_of
from harness.tasks.checks import Check, Holds, all_hold
from harness.tasks.multitask_digits import tables, tuned
from harness.tasks.multitask_digits.metrics import METRICS
from harness.tasks.multitask_digits.small_print import (
    changed,
    lawless,
    percent,
    rarest,
    small_print,
)

__all__ = ["APART", "METRICS", "judge", "match", "of_choices"]

APART = ("optimizer.name", "wrapper", "presence")
"""The settings that distinguish runs in the tables."""

STATE_TOLERANCE = 1e-3
"""The relative tolerance of a slot's decay over the whole absence, in float32."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check the laws and state the answer."""
    cells = tables.cells(records)
    if _have_own_rates(cells):
        return tuned.judge(cells)
    frames = {
        "movement": tables.movement(cells),
        "laws": tables.theory(cells),
        "state": tables.state(cells),
        "losses": tables.losses(cells),
        "curves": tables.curves(cells),
        "backends": tables.backends(cells),
    }
    checked = _checks(frames)
    return Judgement(
        answer=_answer(frames),
        tables=frames,
        small_print=small_print(frames, cells[0].settings, checked),
    )


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


def of_choices(choices: pd.DataFrame) -> str:
    """Return a sentence about the learning rates that a sweep chose."""
    return of_ranges(choices)


def _have_own_rates(cells: Sequence[tables.Cell]) -> bool:
    """Whether an optimizer has several learning rates."""
    rates = {(c.settings.optimizer["name"], rate_of(c)) for c in cells}
    return len(rates) > len({name for name, _ in rates})


# -- laws ------------------------------------------------------------------------------


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


def _answer(frames: Mapping[str, pd.DataFrame]) -> str:
    """Return sentences about the losses, the heads and the optimizer state."""
    movement = frames["movement"]
    sentences = [
        *_of_losses(frames["losses"]),
        *_of_heads(movement),
        *_of_probes(movement),
    ]
    if _keeps(frames["state"]):
        sentences.append(
            "With the wrapper the optimizer state of an absent task keeps every bit."
        )
    return " ".join(sentences) or f"{NO_ANSWER}."


def _of_losses(losses: pd.DataFrame) -> Iterator[str]:
    """Count the losses that the wrapper lowers and raises, on the first backend."""
    if losses.empty:
        return
    rows = first_backend(rarest(losses))
    lower, higher = changed(rows)
    yield (
        f"With each task in {percent(rows)} of the batches, the wrapper makes "
        f"{len(lower)} of {len(rows)} held-out losses lower and {len(higher)} higher."
    )


def _of_heads(movement: pd.DataFrame) -> Iterator[str]:
    """Quote the movement of the real heads, relative to an always present task."""
    parts = [
        f"{_number(moved['none'])} times as far with {name} "
        f"({_number(moved['default'])} times with the wrapper)"
        for name, moved in tables.head_ratios(movement).items()
    ]
    if parts:
        yield (
            "In each step with its task, the head of such a rare task moves "
            f"{', '.join(parts)} as the head of a task that is in every batch."
        )


def _of_probes(movement: pd.DataFrame) -> Iterator[str]:
    """Quote the movement of a weight with a constant gradient, with Adam."""
    rows = rarest(first_backend(movement))
    adam = rows[(rows["optimizer"] == "Adam") & (rows["presence"] < 1)]
    measured = adam.set_index("wrapper")["measured"]
    if {"none", "default"} <= set(measured.index):
        yield (
            "A weight with a constant gradient moves "
            f"{_number(measured['none'])} times as far with Adam "
            f"({_number(measured['default'])} times with the wrapper)."
        )


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


# -- rows ------------------------------------------------------------------------------


def _after_absence(state: pd.DataFrame, wrapper: str) -> pd.DataFrame:
    """Return the rows at the end of the absence."""
    last = state["absent"] == state["absent"].max()
    rows: pd.DataFrame = state[last & (state["wrapper"] == wrapper)]
    return rows
