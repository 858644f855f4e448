"""The command that plans asynchronous workers for the user's own setup."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from harness.commands.options import TABLE_WIDTH, AsJson
from harness.commands.quantities import bandwidth, duration, size
from harness.errors import HarnessError
from harness.simulator.planner import GAIN, PERIODS, Setting, describe_band
from lockstep.messages.errors import sentence

__all__ = ["plan"]

WORKERS = (2, 4, 8, 16, 32, 64)

MOST_WORKERS = 10_000
"""Limit of workers, because a plan also computes every smaller number."""


def plan(
    step: Annotated[str, typer.Option(help="Duration of a local step, e.g. 30ms.")],
    model: Annotated[str, typer.Option(help="Size of the weights, e.g. 91MB.")],
    link: Annotated[
        str,
        typer.Option(
            "--bandwidth", help="Of each machine's link, e.g. 1Gbit or 2GB/s."
        ),
    ],
    latency: Annotated[str, typer.Option(help="Of a message, one way.")] = "0ms",
    center: Annotated[
        str, typer.Option(help="The center's own time for an exchange.")
    ] = "0ms",
    workers: Annotated[
        list[int] | None, typer.Option(help="How many (repeatable).")
    ] = None,
    period: Annotated[
        list[int] | None,
        typer.Option(help="Local steps between exchanges (repeatable)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan asynchronous workers: steps a second, beside an all-reduce in every step."""
    setting = Setting(
        duration(step, "--step"),
        size(model, "--model"),
        bandwidth(link, "--bandwidth"),
        duration(latency, "--latency"),
        duration(center, "--center"),
    )
    counts = _counts("--workers", workers or WORKERS)
    periods = _counts("--period", period or PERIODS)
    rows = [setting.row(p, n) for p in periods for n in counts]
    if as_json:
        # JSON has no infinity, which is the knee of a model without weights.
        finite = [{k: _finite(v) for k, v in row.items()} for row in rows]
        print(json.dumps(finite, indent=1))
        return
    console = Console(width=max(Console().width, TABLE_WIDTH))
    console.print(_table(rows))
    for p in periods:
        console.print(_advice(setting, p, counts[-1]), highlight=False)


def _counts(option: str, values: Sequence[int]) -> list[int]:
    for value in values:
        if not 1 <= value <= MOST_WORKERS:
            expected = f"whole numbers from 1 to {MOST_WORKERS}"
            text = sentence(option, expected, str(value), "give another number")
            raise HarnessError(text)
    return sorted(set(values))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and math.isinf(value) else value


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Local steps a second of all workers")
    columns = ("period", "workers", "asynchronous", "all-reduce", "ratio")
    for name in (*columns, "busiest station", "wait a round", "rounds behind"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row["period"]),
            str(row["workers"]),
            f"{row['steps_per_second']:.4g}",
            f"{row['synchronous_steps_per_second']:.4g}",
            f"{row['gain']:.3g}",
            f"{row['utilization']:.0%}",
            _time(row["waiting_seconds"]),
            str(row["staleness"]),
        )
    return table


def _advice(setting: Setting, period: int, workers: int) -> str:
    """Return a sentence about where a period stops paying off."""
    meeting = setting.knee(period)
    full = "never" if math.isinf(meeting) else f"from {meeting:.3g} workers on"
    ends = setting.bandwidths_of_gain(GAIN, period, workers)
    return (
        f"Period {period}: the busiest station is full {full}. {workers} workers take "
        f"at least {GAIN:g} times the steps of an all-reduce {describe_band(ends)}."
    )


def _time(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
