"""Tables and figures of the three tasks, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.axes import log_axis
from harness.figures.marks import backend_looks, forest, legend, unique
from harness.figures.plot import Drawing
from harness.figures.style import THIN, WIDTH, Theme, marker
from harness.figures.tables import first_backend, grouped
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median, ratio_of_sums
from harness.tasks.absent_heads import laws
from harness.tasks.absent_heads import report as arms
from harness.tasks.absent_heads.training import WRAPPED
from harness.tasks.cells import Cell, cells
from harness.tasks.checks import Check, all_hold
from harness.tasks.multitask_digits.task import TASKS, Settings

APART = ("optimizer.name", "wrapper", "presence")
"""The settings that distinguish runs in the tables."""

TOLERANCE = 0.05
"""The margin around a law that must contain the whole interval of the movement."""

STATE_TOLERANCE = 1e-3
"""The relative tolerance of a slot's decay over the whole absence, in float32."""

POINTS_OF_A_CURVE = 17


def loss(record: Record) -> float:
    """Return the mean of the tasks' final held-out losses."""
    if record.status != "ok":
        return np.inf
    last = int(record.config["checkpoints"])
    return float(np.mean([record.series[f"loss/{task}"][last] for task in TASKS]))


METRICS = {
    "loss": Metric(loss, "nats, mean of the three tasks", "smaller"),
    "head movement": Metric(
        lambda r: arms.movement(r, TASKS), "distance per informative step", "smaller"
    ),
    "relative movement": Metric(
        lambda r: arms.relative_movement(r, TASKS),
        "learning rates per informative step",
        "smaller",
    ),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, and check the laws.

    If each arm has its own best learning rate, only the first backend is compared,
    because the rates are its own.
    """
    of = cells(records, Settings, _label)
    rates = {(c.settings.optimizer["name"], arms.rate_of(c)) for c in of}
    if len(rates) > len({name for name, _ in rates}):
        first = [cell for cell in of if cell.backend == of[0].backend]
        comparison = arms.comparison(first, loss)
        return Judgement({"comparison": comparison, "heads": heads(first)})
    moved, kept = movement(of), state(of)
    frames = {"movement": moved, "laws": theory(of), "state": kept}
    return Judgement({**frames, "losses": losses(of)}, checks(moved, kept))


def _label(of: Settings) -> dict[str, Any]:
    name = of.optimizer["name"]
    return {"optimizer": name, "wrapper": of.wrapper, "presence": of.presence}


def law(of: Settings, arm: str, presence: float) -> float:
    """Return the movement by its law in the second half of training."""
    # Before it, the state warms up.
    return laws.movement(of.optimizer, arm, presence, (of.steps // 2, of.steps))


def movement(of: Sequence[Cell[Settings]]) -> pd.DataFrame:
    """Movement of the probes per informative step in the second half of training.

    ``measured`` is relative to the movement per step at p = 1, with an interval over
    seeds. ``law`` is for this window of a run from fresh state, ``limit`` for long
    runs. ``ratio`` = measured / law with its interval. ``head`` = path of the heads per
    informative step, median over seeds. ``informative`` = the number of informative
    steps per task and run. Runs without an informative step are left out.
    """
    rows = []
    for cell in of:
        optimizer, wrapper = cell.settings.optimizer, cell.settings.wrapper
        presence = cell.settings.presence
        runs = [record for record in cell.records if record.status == "ok"]
        runs = [run for run in runs if arms.gained(run, "informative", TASKS)]
        if not runs:
            continue
        moved, steps = (
            np.array([arms.gained(run, kind, TASKS) for run in runs])
            for kind in ("probe", "informative")
        )
        expected = law(cell.settings, wrapper, presence)
        measured = bootstrap(ratio_of_sums, moved / laws.unit(optimizer), steps)
        row = {
            **cell.labels,
            **measured.columns("measured"),
            "law": expected,
            "limit": laws.limit(optimizer, wrapper, presence),
            "ratio": measured.estimate / expected,
            "ratio_low": measured.low / expected,
            "ratio_high": measured.high / expected,
            "head": np.median([arms.movement(run, TASKS) for run in runs]),
            "informative": np.mean(steps) / len(TASKS),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def theory(of: Sequence[Cell[Settings]]) -> pd.DataFrame:
    """The laws as curves over p, for the window of these runs and for long runs."""
    kinds = {str((c.settings.optimizer, c.settings.wrapper)): c.settings for c in of}
    lowest = min(cell.settings.presence for cell in of)
    points = np.geomspace(lowest, 1.0, POINTS_OF_A_CURVE).tolist()
    rows = [
        {
            "optimizer": each.optimizer["name"],
            "wrapper": each.wrapper,
            "presence": presence,
            "law": law(each, each.wrapper, presence),
            "limit": laws.limit(each.optimizer, each.wrapper, presence),
        }
        for each, presence in product(kinds.values(), points)
    ]
    return pd.DataFrame(rows)


def state(of: Sequence[Cell[Settings]]) -> pd.DataFrame:
    """The remaining state of parity after some steps of absence.

    ``kept`` = norm of the slot / its norm before the absence, median over runs of all
    p; ``lowest`` and ``highest`` over the runs. ``law`` = the slot's decay ** absent if
    zeros are fed, 1 if they are left out.
    """
    keys = ["optimizer", "wrapper", "backend", "slot", "place", "absent", "law"]
    rows = []
    for cell, (name, slot), place in product(of, laws.RATES, ("probe", "head")):
        settings, optimizer = cell.settings, cell.settings.optimizer
        if name != optimizer["name"]:
            continue
        left_out = settings.wrapper in WRAPPED
        decay = 1.0 if left_out else laws.decay(optimizer, slot)
        labels = [name, settings.wrapper, cell.backend, slot, place]
        for record in cell.records:
            if record.status != "ok":
                continue
            norms = record.series[f"state/{place}/{slot}"][settings.checkpoints :]
            for absent, norm in zip([0, *settings.absence], norms, strict=True):
                if norms[0]:
                    rows.append([*labels, absent, decay**absent, norm / norms[0]])
    frame = pd.DataFrame(rows, columns=[*keys, "kept"])
    shares = frame.groupby(keys, sort=False)["kept"]
    table = shares.agg(kept="median", lowest="min", highest="max").reset_index()
    return table[[*keys[:-1], "kept", "lowest", "highest", "law"]]


def losses(of: Sequence[Cell[Settings]]) -> pd.DataFrame:
    """Final held-out losses, without and with the wrapper.

    Medians over the seeds; ``ratio`` = without / with, paired by seed, median with its
    interval. Of the ``seeds``, ``lost_without`` and ``lost_with`` count runs that
    diverged or ended above the loss of the untrained net.
    """
    rows = []
    for (fed, wrapped), task in product(arms.against_zeros(of), TASKS):
        if wrapped.settings.wrapper not in WRAPPED:
            continue
        columns = (cell.column(f"loss/{task}") for cell in (fed, wrapped))
        (a_start, a), (b_start, b) = (
            c[:, [0, fed.settings.checkpoints]].T for c in columns
        )
        with np.errstate(invalid="ignore"):  # NaN if both runs diverged
            ratio = bootstrap(median, a / b)
        row = {
            **wrapped.labels,
            "task": task,
            "without": np.median(a),
            "with": np.median(b),
            **ratio.named("ratio"),
            "lost_without": int((a > a_start).sum()),
            "lost_with": int((b > b_start).sum()),
            "seeds": len(a),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def heads(of: Sequence[Cell[Settings]]) -> pd.DataFrame:
    """The ratio of movements of real heads, zeros over wrapper, and its law.

    Movements are of all heads of a run, in learning rates per informative step in the
    second half of training. Keras counts every step for Adam, as the original did.
    """
    rows = []
    for fed, wrapped in arms.against_zeros(of):
        settings = wrapped.settings
        if settings.wrapper not in WRAPPED:
            continue
        counted = "strict" if fed.backend.startswith("keras3") else settings.wrapper
        share, read = settings.presence, METRICS["relative movement"].read
        ratio = law(settings, "none", share) / law(settings, counted, share)
        rows.append(arms.head_row((fed, wrapped), "all tasks", share, read, ratio))
    return pd.DataFrame(rows, columns=arms.HEADS)


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
    """Yield the figures in reading order."""
    tables = finding.tables
    if "sweep" in tables:
        yield arms.draw_sweep(tables["sweep"], "loss", "nats")
    if "comparison" in tables:
        if len(tables["comparison"]):
            yield arms.draw_comparison(tables["comparison"], "held-out loss")
        if tables["heads"]["ratio"].notna().any():
            yield arms.draw_heads(tables["heads"], "All heads of a run together.")
        return
    if len(tables["losses"]):
        yield draw_losses(tables["losses"])
    if len(tables["movement"]):
        yield draw_movement(tables["movement"], tables["laws"])
    if len(tables["state"]):
        yield draw_state(tables["state"])


def rarest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the smallest p."""
    rows: pd.DataFrame = table[table["presence"] == table["presence"].min()]
    return rows


def draw_losses(table: pd.DataFrame) -> Drawing:
    """The loss with zeros over the loss with the wrapper, for the smallest p."""
    shown = rarest(table)
    shown = shown.assign(case=shown["optimizer"] + ", " + shown["task"])

    def paint(canvas: Canvas, theme: Theme) -> None:
        panel = canvas.subplots()
        panel.axvline(1, color=theme.ink, lw=THIN)
        colors = [theme.methods[arm] for arm in shown["wrapper"]]
        forest(panel, shown, "ratio", "case", colors)
        arms.ratio_axis(panel, shown)
        panel.set_xlabel(
            "held-out loss with zeros / with the wrapper\n"
            "right of 1: higher than with the wrapper"
        )
        legend(canvas, backend_looks(shown["backend"], theme))

    first = first_backend(shown)
    lower, higher = (first["ratio_low"] > 1).sum(), (first["ratio_high"] < 1).sum()
    return Drawing(
        "losses",
        f"At p = {first['presence'].iloc[0]:g} losses end lower with the wrapper in "
        f"{lower} and higher in {higher} of {len(first)} cases",
        alt="Held-out loss with zeros fed, divided by that with the wrapper, for each "
        "optimizer and task.",
        caption="The learning rate is the same with and without the wrapper. Longer "
        "steps can help a task that was rarely present, and hurt if only noise "
        "remains. Paired by seed, medians with 95% intervals.",
        data=table,
        size=(WIDTH, 1.5 + 0.35 * shown["case"].nunique()),
        paint=paint,
    )


def draw_movement(table: pd.DataFrame, theory: pd.DataFrame) -> Drawing:
    """Measured movement and its laws; a panel per optimizer."""
    names, backends = unique(table["optimizer"]), unique(table["backend"])
    presences = sorted(set(table["presence"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        looks = arms.arm_looks(unique(table["wrapper"]), theme)
        panels = canvas.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for panel, name in zip(panels, names, strict=True):
            here, curves = (t[t["optimizer"] == name] for t in (table, theory))
            for (wrapper,), rows in grouped(curves, "wrapper"):
                panel.plot(rows["presence"], rows["law"], **looks[wrapper])
            for (wrapper, backend), rows in grouped(here, "wrapper", "backend"):
                color = looks[wrapper]["color"]
                # Backends are a little apart.
                place = backends.index(backend) - (len(backends) - 1) / 2
                x = rows["presence"] * 1.08**place
                panel.vlines(x, rows["low"], rows["high"], color=color, lw=1)
                panel.plot(x, rows["measured"], **marker(backend, backends, color))
            log_axis(panel, "x", presences)
            panel.set_xlim(presences[-1] * 1.25, presences[0] / 1.5)
            panel.set_title(name)
            panel.set_xlabel("probability p of presence")
        log_axis(panels[0], "y", [0.5, 1, 2, 5, 10], "×")
        panels[0].set_ylabel("movement per informative step\n(1 = always present)")
        handles = {arms.NAMES[arm]: look for arm, look in looks.items()}
        legend(canvas, {**handles, **backend_looks(table["backend"], theme)})

    title = "Movement per informative step with the wrapper"
    fed = rarest(table)
    fed = fed[fed["wrapper"] == "none"]
    for row in fed.sort_values("measured").iloc[-1:].to_dict("records"):
        title = (
            f"Fed zeros, {row['optimizer']} moves a weight with a constant gradient "
            f"{row['measured']:.1f} times as far at p = {row['presence']:g}"
        )
    return Drawing(
        "movement",
        title,
        alt="Movement per informative step against the probability that a task is "
        "present, one panel an optimizer. The measured points lie on the laws.",
        caption="A weight with a constant gradient: its movement in each step in which "
        "its task is present, relative to a task that is always present. Points: "
        "measured, with 95% intervals over seeds. Lines: what the update rule predicts "
        "for a run of this length.",
        data=table,
        size=(WIDTH, 3.4),
        paint=paint,
    )


def draw_state(table: pd.DataFrame) -> Drawing:
    """The norm of each slot over the steps of absence; a panel per slot."""
    shown = first_backend(table[table["place"] == "head"])
    shown = shown.assign(case=shown["optimizer"] + ", slot " + shown["slot"])
    cases = unique(shown["case"])

    def paint(canvas: Canvas, theme: Theme) -> None:
        looks = arms.arm_looks(unique(shown["wrapper"]), theme)
        panels = canvas.subplots(1, len(cases), sharey=True, squeeze=False)[0]
        for panel, case in zip(panels, cases, strict=True):
            here = shown[shown["case"] == case]
            for (wrapper,), rows in grouped(here, "wrapper"):
                look = looks[wrapper]
                panel.plot(rows["absent"], rows["law"], **look)
                panel.plot(rows["absent"], rows["kept"], "o", ms=4, color=look["color"])
            panel.set_title(case.replace(", ", "\n"))
            panel.set_xlabel("steps absent")
        log_axis(panels[0], "y", [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1])
        panels[0].set_ylabel("norm of the slot\n(1 = at departure)")
        arms.arm_legend(canvas, list(looks), theme)

    end = shown[shown["absent"] == shown["absent"].max()]
    fed = 100 * end[end["wrapper"] == "none"]["kept"]
    left = f"{fed.min():.2g}% to {fed.max():.2g}%" if len(fed) else "all"
    return Drawing(
        "state",
        f"{end['absent'].iloc[0]} absent steps leave {left} of a slot",
        alt="Norm of the optimizer slots of an absent task against the steps of its "
        "absence: it falls geometrically when zeros are fed and stays at one with the "
        "wrapper.",
        caption="Points: norm of a slot of the parity head, relative to the last step "
        "with its task; median over all runs. Lines: what the decay of the slot "
        "predicts without the wrapper, and 1 with it.",
        data=table,
        size=(WIDTH, 3.3),
        paint=paint,
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
