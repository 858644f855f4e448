"""The rows of a parity run as JSON and as text for the terminal."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.parity.command import Result
from harness.parity.row import WAYS, Row
from harness.processes.environment import device_name, version
from lockstep import __version__, registry


def write_report(rows: Sequence[Row], report: Path, device: str = "cpu") -> None:
    """Write the rows as a JSON list, one row per line, completely or not at all.

    ``NAME.environment.json`` is written next to ``NAME.json``. It has the versions that
    the rows depend on, and the model of a GPU.
    """
    lines = ",\n".join(json.dumps(row.as_json(), ensure_ascii=False) for row in rows)
    unfinished = report.with_name(f"{report.name}.part")
    unfinished.write_text(f"[\n{lines}\n]\n", "utf-8")
    unfinished.replace(report)
    about = json.dumps(_environment(rows, device), indent=2)
    report.with_suffix(".environment.json").write_text(f"{about}\n", "utf-8")


def print_rows(result: Result, console: Console) -> None:
    """Print a line per family and backend, then failures and the reasons of skips."""
    table = _table("backend", "mode", "family")
    ways = [*WAYS.values()][1:]
    for title in ("cases", "passed", *ways, "failed", "skipped", "max ULP"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("worst case: first diverging step and quantity", no_wrap=True)
    rows = sorted(result.rows, key=_family_key)
    for (backend, mode, family), group in groupby(rows, key=_family_key):
        table.add_row(backend, mode, family, *_summary(list(group)))
    console.print(table)
    for status in ("failed", "passed", "skipped"):
        _print_reasons(status, rows, console)
    for missing in result.missing:
        _say(console, f"not run    {missing}")
    counts = Counter(row.status for row in rows)
    total = (f"{counts[status]} {status}" for status in ("passed", "failed", "skipped"))
    _say(console, ", ".join(total))


def print_explanation(result: Result, console: Console) -> None:
    """Print every compared quantity of the explained case, in hexadecimal too."""
    for driver, lines in result.explanations.items():
        titles = ("step", "quantity", "index", "got", "expected", "ULP", "raw")
        table = _table(*titles, title=driver)
        for line in lines:
            cells = [line[k] for k in ("quantity", "index", "got", "expected")]
            step = int(line["step"]) + 1
            texts = [str(cell) for cell in (step, *cells, line["ulp"], line["raw"])]
            table.add_row(*(Text(text) for text in texts))
        console.print(table)


def _environment(rows: Sequence[Row], device: str) -> dict[str, str]:
    """Return the versions behind the rows. Nothing identifies the machine."""
    backends = sorted({row.backend for row in rows})
    framework = registry.find(backends[0]).framework if backends else ""
    gpu = device_name(framework, device) if framework else None
    frameworks = [p for name in backends for p in registry.find(name).packages]
    packages = {name: str(version(name)) for name in ("numpy", *frameworks)}
    python, system = platform.python_version(), platform.system()
    facts = {"lockstep": __version__, "python": python, "system": system}
    facts |= {"gpu": gpu} if gpu else {}
    return {**facts, "machine": platform.machine(), **packages}


def _family_key(row: Row) -> tuple[str, str, str]:
    return row.backend, row.mode, row.family


def _summary(rows: Sequence[Row]) -> Iterable[str | Text]:
    """Yield the cells of a family: counts, the largest distance and where it is."""
    counts = Counter(row.status for row in rows)
    ways = Counter(row.way for row in rows if row.status == "passed")
    in_part = sum(row.in_part for row in rows)
    yield str(len(rows))
    yield f"{counts['passed']}" + (f" ({in_part} in part)" if in_part else "")
    yield from (str(ways[way]) for way in [*WAYS.values()][1:])
    yield Text(str(counts["failed"]), style="bold red" if counts["failed"] else "")
    yield str(counts["skipped"])
    compared = [row for row in rows if row.max_ulp is not None]
    worst = max(compared, key=lambda row: row.max_ulp or 0.0, default=None)
    yield "-" if worst is None else f"{worst.max_ulp:.3g}"
    if worst is not None and worst.first_divergence is not None:
        first = worst.first_divergence
        yield Text(f"{worst.id}: step {first.step + 1}, {first.quantity}")


def _print_reasons(status: str, rows: Sequence[Row], console: Console) -> None:
    """Print each reason once, with its backends and number of cases."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.status == status and row.reason:
            groups.setdefault(row.reason, []).append(row)
    label = "in part" if status == "passed" else status
    for reason, members in sorted(groups.items()):
        backends = ", ".join(sorted({f"{row.backend}/{row.mode}" for row in members}))
        ids = sorted({row.id for row in members})
        shown = ids[0] if len(ids) == 1 else f"{len(ids)} cases"
        _say(console, f"{label:10} {shown} on {backends}: {reason}")


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def _table(*titles: str, title: str | None = None) -> Table:
    """Create a table whose rows are never wrapped."""
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for column in titles:
        table.add_column(column, no_wrap=True)
    return table
