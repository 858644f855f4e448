"""The answer, computed: what limits cost, what they promise and what they change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.finding import NO_ANSWER, Judgement
from harness.metrics import Metric
from harness.records.record import Record
from harness.statistics import bootstrap, median
from harness.tasks.embeddings.cells import (
    Cell,
    agreeing,
    backends,
    cells,
    curves,
    differences,
    last,
    quoted,
)
from harness.tasks.recommender.settings import Settings

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("optimizer.name", "limit")
"""The settings by which the tables tell runs apart."""

SERIES = (
    "loss",
    "hits",
    "norm/frequent",
    "norm/rare",
    "highest/named",
    "highest/stored",
    "highest/served",
    "above",
)
LEFT = ("above", "drifted", "unnamed", "changed")
RATIOS = (("clip", "none"), ("lookup", "none"), ("clip", "lookup"), ("lookup", "clip"))


def _time_ratio(what: str, limit: str, against: str) -> Metric:
    """Return the metric that compares two times of one run; NaN if it took none."""

    def read(record: Record) -> float:
        times = [
            record.summary.get(f"seconds/{what}/{name}", np.nan)
            for name in (limit, against)
        ]
        return times[0] / times[1]

    return Metric(read, f"time of {what}s, {limit} over {against}", "smaller")


METRICS = {
    "hits": last("hits", "share of choices among the 10 best of 101"),
    "loss": last("loss", "nats"),
    "rows above the limit": last("above", "share of the rows that are served"),
    "lookup time": _time_ratio("lookup", "lookup", "clip"),
    "step time": _time_ratio("step", "clip", "lookup"),
}
"""The numbers by which runs are compared. A run that clips takes the times of all
limits, so that its two times are a comparison by themselves."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records and say the answer."""
    of = cells(records, Settings)
    frames = {
        "cost": cost(of),
        "promise": promise(of),
        "effect": differences(of, ["hits", "loss"]),
        "curves": curves(of, SERIES),
        "backends": backends(of, "loss"),
    }
    return Judgement(_answer(frames), frames, list(_small_print(frames, of[0])))


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare what limits change in ranks and loss; times are each machine's own."""
    return agreeing(published["effect"], own["effect"])


def cost(of: Sequence[Cell]) -> pd.DataFrame:
    """Times as ratios: ``estimate`` = that of ``limit`` / that of ``against``.

    Of a training step, and of a lookup as it is served. The ratio is taken in each
    run; median over the seeds with its interval. ``microseconds`` = median time of
    ``limit``, of the machine on which it was taken.
    """
    rows = []
    for cell in (cell for cell in of if cell.settings.limit == "clip"):
        for what in ("step", "lookup"):
            times = {
                name: cell.last(f"seconds/{what}/{name}") for name in Settings.LIMITS
            }
            for limit, against in RATIOS:
                labels = {**cell.labels, "limit": limit, "against": against}
                known = np.isfinite(times[limit]) & np.isfinite(times[against])
                if not known.any():
                    continue
                mine, other = times[limit][known], times[against][known]
                numbers = bootstrap(median, mine / other).columns("estimate")
                taken = 1e6 * float(np.median(mine))
                rows.append({"what": what, **labels, **numbers, "microseconds": taken})
    numbered = ["against", "estimate", "low", "high", "microseconds"]
    return pd.DataFrame(rows, columns=["what", *of[0].labels, *numbered])


def promise(of: Sequence[Cell]) -> pd.DataFrame:
    """What a limit holds rows to: norms over the limit, the highest of all runs.

    ``named``: of rows that a step has just named, as stored, over all checkpoints;
    ``stored`` and ``served``: of all rows at the end. ``above``: share of all rows that
    are used above the limit at the end; ``drifted``: how many of them were named some
    time; ``unnamed`` and ``changed``: rows that never were, and how many of these are
    not what they were at first. Means over the seeds.
    """
    rows = []
    for cell in of:
        named = cell.measured("highest/named")[:, 1:].max()
        ends = {
            name: cell.measured(f"highest/{name}")[:, -1].max()
            for name in ("stored", "served")
        }
        left = {name: cell.measured(name)[:, -1].mean() for name in LEFT}
        rows.append({**cell.labels, "named": named, **ends, **left})
    return pd.DataFrame(rows)


def _answer(frames: Mapping[str, pd.DataFrame]) -> str:
    lookups = _ratio(frames["cost"], "lookup", "lookup", "clip")["estimate"]
    steps = _ratio(frames["cost"], "step", "clip", "lookup")["estimate"]
    clipped, looked = (_rows(frames["promise"], limit) for limit in ("clip", "lookup"))
    clauses = []
    if len(lookups):
        clauses.append(
            f"to normalise in the lookup takes {quoted(lookups, '.1f')} times as long "
            "at serving as to read rows that were clipped after the step"
        )
    if len(steps):
        times = f"{quoted(steps)} times as long as one that normalises"
        clauses.append(
            f"a training step that clips takes {times}{_noise(frames['cost'])}"
        )
    if len(clipped):
        named = f"{quoted(clipped['named'], '.4f')} of the limit"
        clauses.append(
            f"clipping holds rows that a step names to {named} but leaves "
            f"{_percent(clipped['above'])} of all rows above it"
        )
    if len(looked):
        above = _percent(looked["above"])
        clauses.append(f"the lookup hands out {above} of all rows above the limit")
    text = "; ".join(clauses) or NO_ANSWER
    return f"{text[:1].upper()}{text[1:]}."


def _noise(cost: pd.DataFrame) -> str:
    """Quote how far times of the same work are apart: bare and clipped lookups."""
    same = _ratio(cost, "lookup", "clip", "none")["estimate"]
    if same.empty:
        return ""
    return f", where two identical lookups differ by factors of {quoted(same)}"


def _small_print(frames: Mapping[str, pd.DataFrame], cell: Cell) -> Iterator[str]:
    yield (
        f"Times are tenth percentiles of {_setting(cell, 'timings')} each, taken in "
        "turns in one process with one thread; a step names "
        f"{3 * cell.settings.batch} rows of width {cell.settings.width}, so that the "
        "cost of calls weighs much. Bare and clipped tables are read by the same "
        "lookup: that their times differ shows the error of this timing. Another "
        "machine gives other times."
    )
    against = [
        _ratio(frames["cost"], "step", limit, "none") for limit in Settings.LIMITS[1:]
    ]
    if all(map(len, against)):
        yield (
            "Over the step without a limit: clipping takes "
            f"{quoted(against[0]['estimate'])} times as long, normalising "
            f"{quoted(against[1]['estimate'])} times."
        )
    yield from _above(frames["promise"])
    yield from _changes(frames["effect"])
    if len(frames["backends"]):
        yield (
            "Two backends with the same seed differ by rounding alone, which training "
            "amplifies; what must agree are the intervals."
        )


def _above(promise: pd.DataFrame) -> Iterator[str]:
    """Yield sentences about rows that end above the limit though rows are clipped."""
    for name, rows in _rows(promise, "clip").groupby("optimizer", sort=False):
        drifted = rows["drifted"].max()
        why = (
            f"{quoted(rows['drifted'], '.0f')} that some step has named, since {name} "
            "moves rows that are not named as well"
            if drifted
            else "all of them rows that no step has named"
        )
        yield (
            f"With {name}, {_percent(rows['above'])} of the rows end above the limit "
            f"though rows are clipped, {why}; the highest at "
            f"{quoted(rows['served'])} limits."
        )
    bits_stay = promise["changed"].max() == 0
    yield (
        f"Rows that no step has named ({quoted(promise['unnamed'], '.0f')} a run) "
        + (
            "keep their bits in every run."
            if bits_stay
            else "were changed in some runs."
        )
    )


def _changes(effect: pd.DataFrame) -> Iterator[str]:
    for limit, words in (("none", "Without a limit"), ("lookup", "Normalised")):
        rows = effect[(effect["limit"] == limit) & (effect["what"] == "hits")]
        lower, higher = (rows["high"] < 0).sum(), (rows["low"] > 0).sum()
        if len(rows):
            yield (
                f"{words}, hits@10 differ by {quoted(rows['estimate'], '.3f')} from "
                f"rows clipped: lower in {lower} and higher in {higher} of "
                f"{len(rows)} cases."
            )


def _ratio(cost: pd.DataFrame, what: str, limit: str, against: str) -> pd.DataFrame:
    chosen = (cost["what"] == what) & (cost["limit"] == limit)
    rows: pd.DataFrame = cost[chosen & (cost["against"] == against)]
    return rows


def _rows(table: pd.DataFrame, limit: str) -> pd.DataFrame:
    rows: pd.DataFrame = table[table["limit"] == limit]
    return rows


def _percent(shares: pd.Series) -> str:
    return f"{quoted(100 * shares, '.2g')} %"


def _setting(cell: Cell, name: str) -> int:
    return int(getattr(cell.settings, name))
