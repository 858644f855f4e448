"""Notes below the answer: deviations from laws, transients and lost runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.tasks.absent_heads import laws
from harness.tasks.absent_heads.sentences import FIRST_SQUARE
from harness.tasks.checks import Check, listed
from harness.tasks.multitask_digits import tables
from harness.tasks.multitask_digits.settings import Settings

__all__ = ["changed", "lawless", "percent", "rarest", "small_print"]

TOLERANCE = 0.05
"""The margin around a law that must contain the whole interval of the movement."""

ARMS = {
    "none": "without the wrapper",
    "mean": "with the mean over tasks",
    "default": "with the wrapper",
    "strict": "with the strict wrapper",
}


def small_print(
    frames: Mapping[str, pd.DataFrame], settings: Settings, checked: Sequence[Check]
) -> list[str]:
    """Return sentences about the measurements, and about details of the results."""
    movement = frames["movement"]
    first, last = tables.second_half(settings)
    sentences = [
        *listed(checked),
        "A head is the last layer of a task. Its movement is the length of its path "
        f"in steps {first + 1} to {last}, divided by the informative steps, in which "
        "its task was present. Beside each head, a probe is trained: one weight with a "
        "constant gradient.",
        "A law is the movement that the update rule gives a probe, in units of its "
        "movement per step if the task is always present. It does not apply to a head, "
        "because the gradient of a head is not constant. Intervals are bootstrapped "
        "over seeds (95%).",
        "All arms have the same learning rate of an optimizer, which was not tuned.",
        FIRST_SQUARE,
        *_cases_of(frames["losses"]),
    ]
    sentences += [
        f"Not within {TOLERANCE:.0%} of the law: {_cell(row)}, measured "
        f"{row['measured']:.2f} [{row['low']:.2f}, {row['high']:.2f}], law "
        f"{row['law']:.2f}."
        for _, row in lawless(movement).iterrows()
    ]
    sentences += _transients(movement)
    sentences += _shared_powers(movement, settings)
    sentences += _lost_runs(frames["losses"])
    backends = frames["backends"]
    if len(backends):
        sentences.append(
            "With the same seed, two backends differ only in rounding. Training "
            "amplifies such differences, so only the intervals must agree."
        )
    return sentences


def lawless(movement: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose interval is not fully within the margin of their law."""
    low, high = movement["ratio_low"], movement["ratio_high"]
    within = (low >= 1 - TOLERANCE) & (high <= 1 + TOLERANCE)
    return movement[~within & movement["law"].notna()]


def _transients(movement: pd.DataFrame) -> list[str]:
    """Return a sentence about runs that are too short for their state to settle."""
    once = movement.drop_duplicates(["optimizer", "wrapper", "presence"])
    short = once[np.abs(once["law"] / once["limit"] - 1) > TOLERANCE]
    if short.empty:
        return []
    cases = [
        f"{_cell(row, backend=False)}, {row['law']:.2f} instead of {row['limit']:.2f} "
        f"after {row['informative']:.0f} informative steps"
        for _, row in short.iterrows()
    ]
    return [
        "These runs are too short for the movement to reach its limit, by the laws: "
        f"{'; '.join(cases)}."
    ]


def _shared_powers(movement: pd.DataFrame, settings: Settings) -> list[str]:
    """Explain Adam's excess movement with the wrapper, if there is one."""
    rows = rarest(movement)
    rows = rows[rows["wrapper"] == "default"]
    rows = rows[(rows["optimizer"] == "Adam") & (rows["law"] > 1 + TOLERANCE)]
    if rows.empty:
        return []
    presence = float(rows["presence"].iloc[0])
    adam = {"name": "Adam", "learning_rate": 1.0, "beta1": 0.9, "beta2": 0.999}
    original = laws.movement(adam, "strict", presence, tables.second_half(settings))
    return [
        "With the wrapper Adam still moves further, because of bias correction. All "
        "variables share the powers of beta, which advance when any variable is "
        "updated, so the moments of a rare task are corrected too little. The original "
        f"advances the powers in every step, and the law of that is {original:.1f} "
        "(betas 0.9 and 0.999)."
    ]


def _lost_runs(losses: pd.DataFrame) -> list[str]:
    """Count the runs that ended worse than an untrained net, on the first backend."""
    last = first_backend(rarest(losses))
    sentences = []
    for _, row in last[last["lost_without"] + last["lost_with"] > 0].iterrows():
        sentences.append(
            f"{row['task']} with {row['optimizer']} ended above the loss of the "
            f"untrained net in {row['lost_without']} of {row['seeds']} runs without "
            f"the wrapper, in {row['lost_with']} with it."
        )
    return sentences


def _cases_of(losses: pd.DataFrame) -> Iterator[str]:
    """Name the losses that the wrapper lowers and raises, on the first backend."""
    parts = changed(first_backend(rarest(losses)))
    for rows, what in zip(parts, ("Lower", "Higher"), strict=True):
        if len(rows):
            yield f"{what} with the wrapper: {', '.join(_cases(rows))}."


def _cases(rows: pd.DataFrame) -> list[str]:
    return [
        f"{row['task']} with {row['optimizer']} ({row['with']:.2g} instead of "
        f"{row['without']:.2g})"
        for _, row in rows.iterrows()
    ]


def changed(losses: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the losses that the wrapper lowers and those that it raises."""
    return losses[losses["ratio_low"] > 1], losses[losses["ratio_high"] < 1]


def rarest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the smallest p."""
    rows: pd.DataFrame = table[table["presence"] == table["presence"].min()]
    return rows


def percent(rows: pd.DataFrame) -> str:
    """Return the smallest p as per cent."""
    return f"{100 * rows['presence'].min():g}%"


def _cell(row: pd.Series, backend: bool = True) -> str:
    where = f" on {row['backend']}" if backend else ""
    wrapper = ARMS[row["wrapper"]]
    return f"{row['optimizer']} {wrapper} at p = {row['presence']:g}{where}"
