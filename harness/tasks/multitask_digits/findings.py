"""The answer, computed: how losses end and heads move without and with the wrapper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.finding import NO_ANSWER, Judgement
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tables import first_backend
from harness.tasks.checks import Check, Holds, all_hold, listed
from harness.tasks.multitask_digits import laws, tables
from harness.tasks.multitask_digits.metrics import METRICS
from harness.tasks.multitask_digits.settings import Settings

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("optimizer.name", "wrapper", "presence")
"""The settings by which the tables tell runs apart."""


TOLERANCE = 0.05
"""Margin around a law, in which the whole interval of the movement must lie. Also how
far the intervals of a user's run and of the published one may lie apart."""

STATE_TOLERANCE = 1e-3
"""For the decay of a slot over the whole absence, in float32."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check the laws and say the answer."""
    cells = tables.cells(records)
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
        small_print=_small_print(frames, cells[0].settings, checked),
    )


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's movement with the published one, each over the law of its run.

    Runs of different length have different laws, so the ratios are what must match:
    their intervals overlap, or nearly so.
    """
    keys = ["optimizer", "wrapper", "presence", "backend"]
    columns = [*keys, "ratio", "ratio_low", "ratio_high"]
    both = published["movement"][columns].merge(
        own["movement"][columns], on=keys, suffixes=("_published", "_own")
    )
    both["matches"] = [
        overlap(_ratio(row, "_published"), _ratio(row, "_own"), TOLERANCE)
        for _, row in both.iterrows()
    ]
    return both


# -- laws ------------------------------------------------------------------------------


def _checks(frames: Mapping[str, pd.DataFrame]) -> list[Check]:
    """Return each law with whether it holds on every backend."""
    movement, state = frames["movement"], frames["state"]
    return [
        (
            "the probe, a weight with a constant gradient, moves as its law says",
            not len(_lawless(movement)) if len(movement) else None,
        ),
        ("while a task is absent, its state shrinks by its decay", _decays(state)),
        (
            "with the wrapper the state of an absent task keeps every bit",
            _keeps(state),
        ),
    ]


def _keeps(state: pd.DataFrame) -> Holds:
    """With the wrapper every slot of every run is what it was, to the bit."""
    rows = _after_absence(state, "default")
    return all_hold((rows["lowest"] == 1) & (rows["highest"] == 1))


def _decays(state: pd.DataFrame) -> Holds:
    """Slots shrink as their decay says."""
    gap = np.abs(state["kept"] - state["law"])
    return all_hold(gap <= STATE_TOLERANCE * state["law"])


def _lawless(movement: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose interval is not wholly within the margin of their law."""
    low, high = movement["ratio_low"], movement["ratio_high"]
    within = (low >= 1 - TOLERANCE) & (high <= 1 + TOLERANCE)
    return movement[~within & movement["law"].notna()]


# -- sentences -------------------------------------------------------------------------


def _answer(frames: Mapping[str, pd.DataFrame]) -> str:
    """Return sentences about the losses, then the heads, then the optimizer state."""
    sentences = [*_of_losses(frames["losses"]), *_of_heads(frames["movement"])]
    if _keeps(frames["state"]):
        sentences.append(
            "With the wrapper the optimizer state of an absent task keeps every bit."
        )
    return " ".join(sentences) or f"{NO_ANSWER}."


def _of_losses(losses: pd.DataFrame) -> Iterator[str]:
    """Count the losses that the wrapper lowers and raises, on the first backend."""
    if losses.empty:
        return
    rarest = first_backend(losses[losses["presence"] == losses["presence"].min()])
    lower, higher = _changed(rarest)
    yield (
        f"With each task in {_percent(rarest)} of the batches, the wrapper makes "
        f"{len(lower)} of {len(rarest)} held-out losses lower and {len(higher)} higher."
    )
    for rows, what in ((lower, "lower"), (higher, "higher")):
        if len(rows):
            yield f"{what.capitalize()}: {', '.join(_cases(rows))}."


def _changed(rarest: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the losses that the wrapper lowers and those that it raises."""
    return rarest[rarest["ratio_low"] > 1], rarest[rarest["ratio_high"] < 1]


def _cases(rows: pd.DataFrame) -> list[str]:
    return [
        f"{row['task']} with {row['optimizer']} ({row['with']:.2g} instead of "
        f"{row['without']:.2g})"
        for _, row in rows.iterrows()
    ]


def _of_heads(movement: pd.DataFrame) -> Iterator[str]:
    """Quote how far the real heads move, in units of a task that is always present."""
    first = first_backend(movement)
    always = first[first["presence"] == 1].set_index(["optimizer", "wrapper"])["head"]
    rarest = _rarest(first)
    parts = []
    for name, rows in rarest.groupby("optimizer", sort=True):
        moved = {
            row["wrapper"]: row["head"] / always[name, row["wrapper"]]
            for _, row in rows.iterrows()
            if (name, row["wrapper"]) in always.index and row["presence"] < 1
        }
        if {"none", "default"} <= moved.keys():
            none, default = (_number(moved[each]) for each in ("none", "default"))
            parts.append(f"{none} and {default} ({name})")
    if parts:
        yield (
            "Per step in which its task is present, a head moves this many times as "
            "far as one whose task is in every batch, without and with the wrapper: "
            f"{', '.join(parts)}."
        )


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _percent(rows: pd.DataFrame) -> str:
    return f"{100 * rows['presence'].min():g} %"


def _small_print(
    frames: Mapping[str, pd.DataFrame], settings: Settings, checked: Sequence[Check]
) -> list[str]:
    movement = frames["movement"]
    first, last = tables.second_half(settings)
    sentences = [
        *listed(checked),
        "A head is the last layer of a task. Its movement is the length of its path "
        f"in steps {first + 1} to {last}, divided by the steps in which its task was "
        "present; the probe beside it has a constant gradient, so its movement has a "
        "law, in units of the movement per step when the task is always present. "
        "Intervals are bootstrapped over seeds (95 %).",
        "All arms have the same learning rate of an optimizer, which was not tuned.",
    ]
    sentences += [
        f"Not within {TOLERANCE:.0%} of the law: {_cell(row)}, measured "
        f"{row['measured']:.2f} [{row['low']:.2f}, {row['high']:.2f}], law "
        f"{row['law']:.2f}."
        for _, row in _lawless(movement).iterrows()
    ]
    sentences += _transients(movement)
    sentences += _shared_powers(movement, settings)
    sentences += _lost_runs(frames["losses"])
    backends = frames["backends"]
    if len(backends):
        sentences.append(
            "Two backends with the same seed differ by rounding alone, which training "
            "amplifies; what must agree are the intervals."
        )
    return sentences


def _transients(movement: pd.DataFrame) -> list[str]:
    """Return a sentence about runs that are too short for their state to settle."""
    once = movement.drop_duplicates(["optimizer", "wrapper", "presence"])
    short = once[np.abs(once["law"] / once["limit"] - 1) > TOLERANCE]
    if short.empty:
        return []
    cases = [
        f"{_cell(row, backend=False)} {row['law']:.2f} instead of {row['limit']:.2f} "
        f"({row['informative']:.0f} informative steps)"
        for _, row in short.iterrows()
    ]
    return [f"Not stationary yet, by the laws: {'; '.join(cases)}."]


def _shared_powers(movement: pd.DataFrame, settings: Settings) -> list[str]:
    """Explain Adam's excess with the wrapper, where there is one."""
    rows = _rarest(movement)
    rows = rows[rows["wrapper"] == "default"]
    rows = rows[(rows["optimizer"] == "Adam") & (rows["law"] > 1 + TOLERANCE)]
    if rows.empty:
        return []
    presence = float(rows["presence"].iloc[0])
    adam = {"name": "Adam", "learning_rate": 1.0, "beta1": 0.9, "beta2": 0.999}
    original = laws.movement(adam, "strict", presence, tables.second_half(settings))
    return [
        "Adam's excess with the wrapper is bias correction: the powers of beta are "
        "shared by all variables and advance when any of them is updated, so that a "
        "rare task's young moments count as old. The original advances them in every "
        f"step; the same law gives {original:.1f} for it (betas 0.9 and 0.999)."
    ]


def _lost_runs(losses: pd.DataFrame) -> list[str]:
    """Count the runs that ended worse than an untrained net, on the first backend."""
    rarest = first_backend(losses[losses["presence"] == losses["presence"].min()])
    sentences = []
    for _, row in rarest[rarest["lost_without"] + rarest["lost_with"] > 0].iterrows():
        sentences.append(
            f"{row['task']} with {row['optimizer']} ended above the loss of the "
            f"untrained net in {row['lost_without']} of {row['seeds']} runs without "
            f"the wrapper, in {row['lost_with']} with it."
        )
    return sentences


# -- rows ------------------------------------------------------------------------------


def _rarest(movement: pd.DataFrame) -> pd.DataFrame:
    rows: pd.DataFrame = movement[movement["presence"] == movement["presence"].min()]
    return rows


def _after_absence(state: pd.DataFrame, wrapper: str) -> pd.DataFrame:
    """Return the rows at the end of the absence."""
    last = state["absent"] == state["absent"].max()
    rows: pd.DataFrame = state[last & (state["wrapper"] == wrapper)]
    return rows


def _ratio(row: pd.Series, suffix: str = "") -> Interval:
    names = ("ratio", "ratio_low", "ratio_high")
    return Interval(*(np.asarray(row[f"{name}{suffix}"]) for name in names))


def _cell(row: pd.Series, backend: bool = True) -> str:
    wrapper = {"none": "without", "default": "with"}.get(row["wrapper"], "with strict")
    where = f" on {row['backend']}" if backend else ""
    return f"{row['optimizer']} {wrapper} the wrapper at p = {row['presence']:g}{where}"
