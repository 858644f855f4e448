"""The printed report of a benchmark: a table of its rows."""

from __future__ import annotations

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.bench.command import Request
from harness.bench.compare import (
    FASTER,
    SLOWER,
    UNDECIDED,
    controls_line,
    judge,
    written,
)
from harness.records.files import folder

STYLES = {FASTER: "green", SLOWER: "red", UNDECIDED: "yellow"}

NARROWEST, WIDEST = 100, 140
"""Smallest and largest width of a table, in columns of the terminal."""


def width() -> int:
    """Return the width of the tables on this terminal."""
    return min(max(Console().width, NARROWEST), WIDEST)


def print_benchmarks(request: Request, console: Console) -> None:
    """Print a row for each comparison, and the controls."""
    tables = []
    for benchmark in request.benchmarks:
        home = folder(benchmark.name, request.publish, request.root)
        finding = judge(benchmark, home)
        found = finding.tables if finding is not None else {}
        if "rows" in found:
            console.print(_table(benchmark.title, found["rows"]))
            tables.append(found["rows"])
        if "on a GPU" in found:
            console.print(_table(f"{benchmark.title}, on a GPU", found["on a GPU"]))
    if tables:
        console.print(Text(controls_line(pd.concat(tables))))


def _table(title: str, rows: pd.DataFrame) -> Table:
    table = Table(title=Text(title), title_justify="left")
    table.add_column("row", ratio=1)
    table.add_column("value [95% interval]", justify="right", no_wrap=True)
    table.add_column("ours is", no_wrap=True)
    # On a GPU there are no verdicts and no controls.
    for _, entry in rows.iterrows():
        against = f" / {entry['against']}" if entry["against"] else ""
        control = entry.get("control", False)
        row = entry["what"] if control else f"{entry['what']}{against}"
        verdict = "control" if control else entry.get("verdict", "")
        table.add_row(
            Text(f"{entry['backend']}: {row}"),
            Text(written(dict(entry))),
            Text(verdict, style=STYLES.get(verdict, "")),
        )
    return table
