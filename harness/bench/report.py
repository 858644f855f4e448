"""The tables that are printed on a terminal."""

from __future__ import annotations

import math

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.bench.compare import (
    FASTER,
    SLOWER,
    UNDECIDED,
    controls_line,
    judge,
    written,
)
from harness.bench.measure import Request

STYLES = {FASTER: "green", SLOWER: "red", UNDECIDED: "yellow"}

NARROWEST, WIDEST = 100, 140
"""Smallest and largest width of a table, in columns of the terminal."""


def terminal() -> Console:
    """Return standard output, with a width at which a table can be read."""
    return Console(width=min(max(Console().width, NARROWEST), WIDEST))


def print_benchmarks(request: Request) -> None:
    """Print a row for each comparison, and the controls."""
    console, tables = terminal(), []
    for benchmark in request.benchmarks:
        finding = judge(benchmark, request.out / benchmark.name)
        results = finding.tables if finding is not None else {}
        if "rows" in results:
            console.print(_table(benchmark.title, results["rows"]))
            tables.append(results["rows"])
        if "on a GPU" in results:
            console.print(_table(f"{benchmark.title}, on a GPU", results["on a GPU"]))
    if tables:
        console.print(Text(controls_line(pd.concat(tables))))


def _table(title: str, rows: pd.DataFrame) -> Table:
    table = _empty(title, "value [95% interval]", "ours is")
    # On a GPU there are no verdicts and no controls.
    for entry in rows.to_dict("records"):
        control = entry.get("control", False)
        against = f" / {entry['against']}" if entry["against"] and not control else ""
        verdict = "control" if control else entry.get("verdict", "")
        table.add_row(
            Text(f"{entry['backend']}: {entry['what']}{against}"),
            Text(written(entry)),
            Text(verdict, style=STYLES.get(verdict, "")),
        )
    return table


def print_commits(rows: pd.DataFrame, revisions: str) -> None:
    """Print the rows of a comparison of two commits."""
    numbers = ("before, us", "after, us", "ratio [95% interval]")
    table = _empty(f"After / before of {revisions}", *numbers, "verdict")
    for row in rows.to_dict("records"):
        beside = f", beside {row['peer']}" if row["peer"] else ""
        shown = [f"{row['before']:.1f}", f"{row['after']:.1f}", f"{row['ratio']:.3f}"]
        if not math.isnan(row["low"]):
            shown[-1] += f" [{row['low']:.3f}, {row['high']:.3f}]"
        table.add_row(
            Text(f"{row['backend']}: {row['benchmark']}: {row['what']}{beside}"),
            *(["", "", ""] if row["reason"] else shown),
            Text(row["verdict"], style=STYLES.get(row["verdict"], "yellow")),
        )
    terminal().print(table)


def _empty(title: str, *columns: str) -> Table:
    """Return a table whose first column is ``row`` and whose last one is a verdict."""
    table = Table(title=Text(title), title_justify="left")
    table.add_column("row", ratio=1)
    for name in columns[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(columns[-1])
    return table
