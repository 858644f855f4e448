"""Inserts of the parity report: counts a family or tool and backend, and reasons."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.pages.tables import CARDS, Cell, table
from harness.pages.templating import number, render
from harness.parity.cases import FAMILIES
from harness.parity.row import WAYS, Row
from lockstep.registry import BACKENDS

COMMAND = ".venv/bin/nox -s parity -- --all --report results/parity/report.json"
ON_GPU = (
    "python -m harness parity --backend pytorch --all --device cuda "
    "--report results/parity/gpu.json"
)

SCALING = (
    "loss_scale_fixed",
    "loss_scale_dynamic",
    "auto_loss_scaler_backoff",
    "auto_loss_scaler_logmax",
)
CLIPPING = ("larc", "clip_by_global_norm", "regularization_loss")
TOOLS: Mapping[str, tuple[str, Sequence[str]]] = {
    "multitask": ("Multitask", ("multitask", "multitask_clip")),
    "rows": ("Row clipping", ("variable_clipping",)),
    "scaling": ("Loss scaling", SCALING),
    "masters": ("Float32 masters", ("mixed_precision_wrapper",)),
    "agn": ("Asynchronous workers", ("agn",)),
    "larc": ("LARC and clipping", CLIPPING),
    "novograd": ("NovoGrad", ("novograd",)),
    "policies": ("Learning-rate policies", ("lr_policies",)),
    "optimize_loss": ("optimize_loss", ("optimize_loss",)),
    "base_optimizers": ("TensorFlow 1's optimizers", ("base_optimizers",)),
}
"""Insert of a tool's page -> the tool, and its families of cases."""


@dataclass(frozen=True)
class Report:
    """All rows of a report and the environment it was recorded in."""

    rows: Sequence[Row]
    environment: dict[str, Any]


def read_report(folder: Path, name: str = "report") -> Report | None:
    """Read a published report; None if parity has not been recorded yet."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    rows = [Row.from_json(entry) for entry in json.loads(path.read_text("utf-8"))]
    about = path.with_suffix(".environment.json")
    return Report(rows, json.loads(about.read_text("utf-8")))


def parity_inserts(results: Path) -> dict[str, str]:
    """Return name -> insert about parity; without a report, inserts say so."""
    gpu = read_report(results / "parity", "gpu")
    on_gpu = _missing(ON_GPU)
    if gpu:
        title = f"Parity on {gpu.environment.get('gpu', 'a GPU')}"
        on_gpu = f"{_by_family(title, gpu.rows)}\n{_facts(gpu)}"
    names = ["home_parity", "parity_matrix", "parity_reasons", "parity_environment"]
    names += [f"parity_{tool}" for tool in TOOLS]
    report = read_report(results / "parity")
    if report is None:
        return {**dict.fromkeys(names, _missing(COMMAND)), "parity_gpu": on_gpu}
    of_tools = (
        _by_family(f"{title}: parity", report.rows, families)
        for title, families in TOOLS.values()
    )
    matrix = _by_family("Parity by family and backend", report.rows)
    parts = (_by_tool(report.rows), matrix, _reasons(report.rows), _facts(report))
    return {
        **dict(zip(names, (*parts, *of_tools), strict=True)),
        "parity_gpu": on_gpu,
    }


def ulps(distance: float | None) -> str:
    """Return a distance as text: "exact", or a number of ULP."""
    if distance is None:
        return ""
    return "exact" if distance == 0 else f"{number(distance, 2)} ULP"


def _missing(command: str) -> str:
    return render("not_measured.md.jinja", command=command)


def _facts(report: Report) -> str:
    return render("facts.md.jinja", facts=report.environment)


# -- counts ----------------------------------------------------------------------------


def _by_tool(rows: Sequence[Row]) -> str:
    """Return the counts of each tool by backend, over all modes, for the home page."""
    present = {row.family for row in rows}
    tools = {
        title: families
        for title, families in TOOLS.values()
        if present.intersection(families)
    }
    backends = [name for name in BACKENDS if name in {row.backend for row in rows}]
    title = "Parity by tool and backend"
    return _matrix(title, "Tool", tools, rows, backends, lambda row: row.backend)


def _by_family(
    title: str, rows: Sequence[Row], families: Sequence[str] = tuple(FAMILIES)
) -> str:
    """Return the counts of each family, by backend and mode."""
    present = {row.family for row in rows}
    lines = {name: (name,) for name in families if name in present}
    return _matrix(title, "Family", lines, rows, _labels(rows), _label, ways=True)


def _matrix(
    title: str,
    head: str,
    lines: Mapping[str, Sequence[str]],
    rows: Sequence[Row],
    columns: Sequence[str],
    column_of: Callable[[Row], str],
    ways: bool = False,
) -> str:
    """Return a table of counts: a line for some families, in each column.

    ``ways``: whether a cell says in which ways its cases are right.
    """
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cells.setdefault((row.family, column_of(row)), []).append(row)
    if not lines:
        return _missing(COMMAND)
    body = [
        [
            Cell(name, name, "code" if ways else ""),
            *(
                _counts([r for f in of for r in cells.get((f, column), ())], ways)
                for column in columns
            ),
        ]
        for name, of in lines.items()
    ]
    return table(title, [head, *columns], body, style="matrix")


def _counts(rows: Sequence[Row], with_ways: bool) -> Cell:
    """Return how many cases passed, the largest distance, and in which way."""
    status = Counter[str](row.status for row in rows)
    replayed = status["passed"] + status["failed"]
    if not replayed:
        return Cell("–", None, "none")
    ways = Counter(row.way for row in rows if row.status == "passed")
    distances = [row.max_ulp for row in rows if row.max_ulp is not None]
    notes = [ulps(max(distances))] if distances else []
    if with_ways:
        if set(ways) - {WAYS["recording"]}:
            notes += [f"{ways[way]} {way}" for way in WAYS.values() if ways[way]]
        in_part = sum(row.in_part for row in rows)
        notes += [f"{in_part} in part"] if in_part else []
        notes += [f"{status['skipped']} skipped"] if status["skipped"] else []
    notes += [f"{status['failed']} failed"] if status["failed"] else []
    style = "bad" if status["failed"] else "good"
    text = f"{status['passed']} of {replayed}"
    return Cell(text, float(status["passed"]), style, tuple(notes))


def _labels(rows: Iterable[Row]) -> list[str]:
    """Return the different backends and modes, in the order of the registry."""
    order = [f"{name} {mode}" for name, of in BACKENDS.items() for mode in of.modes]
    places = {f"{row.backend} {row.mode}": _label(row) for row in rows}
    known = [places[place] for place in order if place in places]
    return [*known, *(places[place] for place in sorted({*places} - {*order}))]


def _label(row: Row) -> str:
    """Return the name in tables, with the mode only if the backend has several."""
    known = BACKENDS.get(row.backend)
    one_mode = known is not None and len(known.modes) == 1
    return row.backend if one_mode else f"{row.backend} {row.mode}"


# -- reasons ---------------------------------------------------------------------------


def _reasons(rows: Sequence[Row]) -> str:
    """Return what was left out or failed: a row for each reason."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.reason or row.status != "passed":
            how: str = row.status if row.status != "passed" else "passed in part"
            for reason in re.split("; (?=without )", row.reason):
                groups.setdefault((how, reason), []).append(row)
    if not groups:
        return "Every case of these families is replayed and passes on every backend.\n"
    lines = list[list[Cell | str]]()
    order = ("skipped", "failed", "passed in part")
    for how, reason in sorted(groups, key=lambda group: order.index(group[0])):
        of = groups[how, reason]
        count = len({row.id for row in of})
        families = ", ".join(dict.fromkeys(row.family for row in of))
        where = ", ".join(_labels(of))
        why = Cell(reason, reason, "wrap")
        lines.append([why, how, families, where, Cell(str(count), float(count))])
    columns = ["Why", "Status", "Families", "Backends", "Cases"]
    return table("Cases that did not pass in full", columns, lines, style=CARDS)
