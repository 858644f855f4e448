"""Tables and figures of the three tasks, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from harness.figures.marks import curves, dots, first_backend, log_axis, unique
from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Floats, bootstrap, ratio_of_sums
from harness.tasks.absent_heads import laws
from harness.tasks.absent_heads import report as arms
from harness.tasks.absent_heads.training import WRAPPED
from harness.tasks.cells import Cell, cells, over_time
from harness.tasks.checks import Check, all_hold
from harness.tasks.multitask_digits.task import TASKS, Settings

TOLERANCE = 0.05
"""The margin around a law that must contain the whole interval of the movement."""

STATE_TOLERANCE = 1e-3
"""The relative tolerance of a slot's decay over the whole absence, in float32."""


def loss(record: Record) -> float:
    """Return the mean of the tasks' final held-out losses."""
    if record.status != "ok":
        return np.inf
    last = int(record.config["checkpoints"])
    return float(np.mean([record.series[f"loss/{task}"][last] for task in TASKS]))


def losses(cell: Cell) -> Floats:
    """Return the mean of the tasks' held-out losses, [seeds, checkpoints]."""
    values = [cell.column(f"loss/{task}") for task in TASKS]
    return np.asarray(np.mean(values, axis=0))


METRICS = {
    "loss": Metric(loss, "nats, mean of the three tasks", "smaller"),
    "head movement": Metric(
        lambda r: arms.movement(r, TASKS), "distance per informative step", "smaller"
    ),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check the laws.

    If each arm has its own best learning rate, only the first backend is compared,
    because the rates are its own, and laws are not checked.
    """
    of = cells(
        records,
        Settings,
        lambda of: {
            "optimizer": of.optimizer["name"],
            "wrapper": of.wrapper,
            "presence": of.presence,
        },
    )
    rates = {(c.settings.optimizer["name"], arms.rate_of(c)) for c in of}
    if len(rates) > len({name for name, _ in rates}):
        first = [cell for cell in of if cell.backend == of[0].backend]
        tables = {"comparison": arms.comparison(first, loss)}
        return Judgement(tables | {"seconds": over_time(first, "loss", losses)})
    moved, kept = movement(of), state(of)
    tables = {"comparison": arms.comparison(of, loss), "movement": moved, "state": kept}
    return Judgement(tables, checks(moved, kept))


def movement(of: Sequence[Cell]) -> pd.DataFrame:
    """Movement of the probes per informative step in the second half of training.

    ``measured`` is relative to the movement per step at p = 1, with an interval over
    seeds. ``law`` is for this window of a run from fresh state. ``ratio`` = measured /
    law with its interval. Runs without an informative step are left out.
    """
    rows = []
    for cell in of:
        settings = cell.settings
        runs = [record for record in cell.records if record.status == "ok"]
        runs = [run for run in runs if arms.gained(run, "informative", TASKS)]
        if not runs:
            continue
        moved, steps = (
            np.array([arms.gained(run, kind, TASKS) for run in runs])
            for kind in ("probe", "informative")
        )
        unit = laws.unit(settings.optimizer)
        measured = bootstrap(ratio_of_sums, moved / unit, steps)
        # Before the second half of training the state warms up.
        window = settings.steps // 2, settings.steps
        arm = settings.optimizer, settings.wrapper, settings.presence
        law = laws.movement(*arm, window)
        row = {
            **cell.labels,
            **measured.columns("measured"),
            "law": law,
            "ratio": measured.estimate / law,
            "ratio_low": measured.low / law,
            "ratio_high": measured.high / law,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def state(of: Sequence[Cell]) -> pd.DataFrame:
    """The remaining state of parity's head after some steps of absence.

    ``kept`` = norm of the slot / its norm before the absence, median over runs of all
    p; ``lowest`` and ``highest`` over the runs. ``law`` = the slot's decay ** absent if
    zeros are fed, 1 if they are left out.
    """
    keys = ["optimizer", "wrapper", "backend", "slot", "absent", "law"]
    rows = []
    for cell, (name, slot) in product(of, laws.RATES):
        settings, optimizer = cell.settings, cell.settings.optimizer
        if name != optimizer["name"]:
            continue
        left_out = settings.wrapper in WRAPPED
        decay = 1.0 if left_out else laws.decay(optimizer, slot)
        labels = [name, settings.wrapper, cell.backend, slot]
        for record in cell.records:
            series = record.series.get(f"state/head/{slot}")  # Keras has none.
            if record.status != "ok" or series is None:
                continue
            norms = series[settings.checkpoints :]
            for absent, norm in zip([0, *settings.absence], norms, strict=True):
                if norms[0]:
                    rows.append([*labels, absent, decay**absent, norm / norms[0]])
    frame = pd.DataFrame(rows, columns=[*keys, "kept"])
    shares = frame.groupby(keys, sort=False)["kept"]
    table = shares.agg(kept="median", lowest="min", highest="max").reset_index()
    return table[[*keys[:-1], "kept", "lowest", "highest", "law"]]


def checks(movement: pd.DataFrame, state: pd.DataFrame) -> list[Check]:
    """Return each law with whether it holds on every backend."""
    known = movement.dropna(subset=["law"]) if len(movement) else movement
    within = (known["ratio_low"] >= 1 - TOLERANCE) & (
        known["ratio_high"] <= 1 + TOLERANCE
    )
    gap = np.abs(state["kept"] - state["law"])
    last = state["absent"] == state["absent"].max()
    kept = state[last & (state["wrapper"] == "default")]
    return [
        (
            "a weight with a constant gradient (the probe) moves as far as its law "
            "predicts",
            all_hold(within),
        ),
        (
            "while a task is absent, its state shrinks by its decay",
            all_hold(gap <= STATE_TOLERANCE * state["law"]),
        ),
        (
            "with the wrapper the state of an absent task keeps every bit",
            all_hold((kept["lowest"] == 1) & (kept["highest"] == 1)),
        ),
    ]


def drawings(finding: Finding) -> Iterator[Drawing]:
    tables = finding.tables
    tuned = "sweep" in tables
    if len(tables["comparison"]):
        yield arms.draw_comparison(tables["comparison"], "held-out loss", tuned)
    if tuned:
        yield from arms.draw_sweeps(tables["sweep"], "loss", "nats")
        if len(tables["seconds"]):
            yield from draw_seconds(tables["seconds"])
    if len(tables.get("movement", ())):
        yield draw_movement(tables["movement"])
    if len(tables.get("state", ())):
        yield draw_state(tables["state"])


def rarest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the smallest p."""
    rows: pd.DataFrame = table[table["presence"] == table["presence"].min()]
    return rows


def draw_movement(table: pd.DataFrame) -> Drawing:
    """The movement of the probes and its law, for the smallest p."""
    shown = rarest(table)
    presence = shown["presence"].iloc[0]
    title = "Movement per informative step with the wrapper"
    fed = shown[shown["wrapper"] == "none"].sort_values("measured")
    for row in fed.iloc[-1:].to_dict("records"):
        title = (
            f"Fed zeros, {row['optimizer']} moves a weight with a constant gradient "
            f"{row['measured']:.1f} times as far at p = {presence:g}"
        )
    return dots(
        "movement",
        title,
        shown.assign(case=shown["optimizer"], hue=shown["wrapper"]),
        "measured",
        "movement per informative step\n(1 = always present)",
        hues=arms.NAMES,
        alt="Movement per informative step of a task that is seldom present, a line an "
        "optimizer. The measured points lie on the laws.",
        caption="A weight with a constant gradient: its movement in each step in which "
        f"its task is present (probability {presence:g}), relative to a task that is "
        "always present. Points: measured, with 95% intervals over seeds. Ticks: what "
        "the update rule predicts for a run of this length.",
        data=table,
        law="law",
        axis=lambda panel: log_axis(panel, "x", [0.5, 1, 2, 5, 10], "×"),
    )


def draw_state(table: pd.DataFrame) -> Drawing:
    """The norm of each slot after the longest absence."""
    shown = first_backend(table)
    end = shown[shown["absent"] == shown["absent"].max()]
    fed = 100 * end[end["wrapper"] == "none"]["kept"]
    left = f"{fed.min():.2g}% to {fed.max():.2g}%" if len(fed) else "all"
    cases = end["optimizer"] + ", slot " + end["slot"]
    ends = {"kept_low": end["lowest"], "kept_high": end["highest"]}
    return dots(
        "state",
        f"{end['absent'].iloc[0]} absent steps leave {left} of a slot",
        end.assign(case=cases, hue=end["wrapper"], **ends),
        "kept",
        "norm of the slot (1 = at departure)",
        hues=arms.NAMES,
        alt="Norm of the optimizer slots of a task after the steps of its absence: a "
        "small part is left when zeros are fed, and all with the wrapper.",
        caption="Norm of a slot of the parity head, relative to the last step with its "
        "task; median and range over all runs. Ticks: what the decay of the slot "
        "predicts without the wrapper, and 1 with it.",
        data=table,
        law="law",
        axis=lambda panel: log_axis(panel, "x", [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1]),
    )


def draw_seconds(table: pd.DataFrame) -> Iterator[Drawing]:
    """The loss over the seconds, for the first case with and without the wrapper."""
    ends = table.pivot_table("seconds", ["optimizer", "presence"], "wrapper", "max")
    known = ends.reindex(columns=["none", "default"]).dropna()
    if known.empty:
        return
    (name, presence), (zeros, wrapped) = known.index[0], known.iloc[0]
    rows = table[(table["optimizer"] == name) & (table["presence"] == presence)]
    yield curves(
        "seconds",
        f"{name}, p = {presence:g}: {rows['step'].max()} steps take {zeros:.2f} s with "
        f"zeros, {wrapped:.2f} s with the wrapper",
        rows.assign(method=rows["wrapper"]),
        "seconds",
        "loss",
        ("seconds of a run", "held-out loss (nats)"),
        looks=lambda theme: {
            arm: {
                "color": theme.hue(arm),
                "ls": arms.LINES[arm],
                "label": arms.NAMES[arm],
            }
            for arm in unique(rows["wrapper"])
        },
        alt="Held-out loss over the seconds of a run, with zeros and with the wrapper.",
        caption="Each arm at its own best learning rate. Medians over seeds with 95% "
        "intervals. Seconds are equal parts of the recorded duration of a run, which "
        "has its start and its measurements.",
        data=table,
        axis=lambda panel: log_axis(panel, "y"),
    )


def brief(finding: Finding) -> Drawing:
    """Return the tuned losses of the rarest task, for the home page and README.

    Raises:
        LookupError: the finding has no such rows.
    """
    table = rarest(first_backend(finding.tables["comparison"]))
    table = table[table["wrapper"] == "default"]
    share = 100 * float(table["presence"].iloc[0])
    told = [
        f"{what} for {' and '.join(names)}"
        for what, names in {
            "lower": table["optimizer"][table["ratio_low"] > 1],
            "higher": table["optimizer"][table["ratio_high"] < 1],
        }.items()
        if len(names)
    ]
    return replace(
        arms.draw_comparison(table.drop(columns="presence"), "held-out loss"),
        name="absent_tasks",
        title=f"Tuned, with tasks in {share:g}% of the batches, the wrapper's loss is "
        f"{', '.join(told) or 'not different'}",
        alt="The held-out loss with zeros fed divided by that with the wrapper, for "
        "each optimizer, with 95% intervals.",
        size=(4.6, 2.7),
    )
