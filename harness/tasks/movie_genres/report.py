"""Tables and figures of the heads of genres, from records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.figures.marks import (
    Look,
    first_backend,
    grouped,
    legend,
    log_axis,
    percent,
)
from harness.figures.plot import Drawing
from harness.figures.style import PANEL, Theme
from harness.judgement.finding import Finding, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.absent_heads import laws
from harness.tasks.absent_heads import report as arms
from harness.tasks.absent_heads.training import WRAPPED
from harness.tasks.cells import Cell, cells, ratio
from harness.tasks.movie_genres.task import GENRES, RAREST, Settings

HEADS = ["optimizer", "backend", "head", "presence", *arms.RATIO, "law"]
"""The columns, also of a table without rows."""


def error(record: Record, genres: Sequence[str] = GENRES) -> float:
    """Return the mean of the heads' root mean squared errors at the end, in stars."""
    if record.status != "ok":
        return np.inf
    squares = [record.series[f"loss/{genre}"][-1] for genre in genres]
    return float(np.mean(np.sqrt(squares)))


METRICS = {
    "error": Metric(error, "stars, mean of the genres", "smaller"),
    "documentary error": Metric(partial(error, genres=[RAREST]), "stars", "smaller"),
    "documentary movement": Metric(
        partial(arms.relative_movement, heads=[RAREST]),
        "learning rates per informative step",
        "smaller",
    ),
}
"""The metrics by which runs are compared."""


def judge(records: Sequence[Record]) -> Judgement:
    of = cells(
        records,
        Settings,
        lambda of: {"optimizer": of.optimizer["name"], "wrapper": of.wrapper},
    )
    return Judgement({"comparison": arms.comparison(of, error), "heads": heads(of)})


def heads(of: Sequence[Cell]) -> pd.DataFrame:
    """The ratio of movements of each genre's head, zeros over wrapper, and its law.

    Movements are in learning rates per step with the genre, in the second half of
    training. Every step has some genre, so Adam's powers of beta advance in each step.
    """
    rows = []
    for fed, wrapped in arms.against_zeros(of):
        settings = wrapped.settings
        if settings.wrapper not in WRAPPED:
            continue
        window = settings.steps // 2, settings.steps
        for genre in GENRES:
            share = _presence([*fed.records, *wrapped.records], genre)
            if not 0 < share <= 1:
                continue
            law = laws.movement(settings.optimizer, "none", share, window)
            law /= laws.movement(settings.optimizer, "strict", share, window)
            read = partial(arms.relative_movement, heads=[genre])
            row = {
                "optimizer": settings.optimizer["name"],
                "backend": fed.backend,
                "head": genre,
                "presence": share,
                **ratio("ratio", arms.numbers(fed, read), arms.numbers(wrapped, read)),
                "law": law,
            }
            rows.append(row)
    return pd.DataFrame(rows, columns=HEADS)


def _presence(records: Sequence[Record], genre: str) -> float:
    """Return the share of steps with a genre, over the runs that ended."""
    counts = [
        record.series[f"informative/{genre}"][-1] / record.config["steps"]
        for record in records
        if record.status == "ok"
    ]
    return float(np.mean(counts)) if counts else np.nan


def drawings(finding: Finding) -> Iterator[Drawing]:
    tables = finding.tables
    if len(tables["comparison"]):
        yield arms.draw_comparison(tables["comparison"], "error")
    if "sweep" in tables:
        yield from arms.draw_sweeps(tables["sweep"], "error", "stars")
    if tables["heads"]["ratio"].notna().any():
        yield draw_heads(tables["heads"])


def draw_heads(table: pd.DataFrame) -> Drawing:
    """The movement of the heads over their presence, and its law."""
    shown = first_backend(table.dropna(subset=["ratio", "law"]))

    def paint(canvas: Canvas, theme: Theme) -> None:
        panel = canvas.subplots()
        colors = cycle(theme.methods[name] for name in ("none", "default", "strict"))
        handles: dict[str, Look] = {}
        for (name,), of in grouped(shown, "optimizer"):
            rows, color = of.sort_values("presence"), next(colors)
            panel.plot(rows["presence"], rows["law"], color=color)
            panel.vlines(rows["presence"], rows["ratio_low"], rows["ratio_high"], color)
            panel.plot(rows["presence"], rows["ratio"], "o", ms=4, color=color)
            handles[name] = {"color": color, "marker": "o", "ms": 4}
        log_axis(panel, "x", [0.02, 0.05, 0.1, 0.2, 0.5, 1])
        panel.xaxis.set_major_formatter(percent())
        panel.set_xlabel("share of steps with the genre")
        log_axis(panel, "y", [0.5, 1, 2, 5, 10, 20], "×")
        panel.set_ylabel("movement, zeros / wrapper")
        legend(canvas, handles)

    gaps = np.abs(np.log((shown["ratio"] / shown["law"]).to_numpy(float)))
    row = shown.iloc[int(np.argmax(gaps))]
    return Drawing(
        "heads",
        f"{row['optimizer']}, {row['head']} in {row['presence']:.0%} of the steps: "
        f"zeros move a head {row['ratio']:.1f} times as far; the law has "
        f"{row['law']:.1f}",
        alt="How many times as far a head moves per step of its genre if it is fed "
        "zeros, over the share of steps that have the genre; the law is a line.",
        caption="One point a genre. Path of a head in learning rates per step with its "
        "genre, zeros over wrapper, each at its own best rate: medians over seeds with "
        "95% intervals. Lines: the law of a constant gradient.",
        data=table,
        size=(PANEL, 3.3),
        paint=paint,
    )
