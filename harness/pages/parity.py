"""Inserts of the parity report: counts a family and backend, and reasons."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

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
STATUS = ("skipped", "failed")
FEW = 0.25
"""On the home page, a cell has another color if a larger share of cases is left out."""


class Tool(NamedTuple):
    """A tool: its name, and its families of cases."""

    name: str
    families: tuple[str, ...]


SCALING = (
    "loss_scale_fixed",
    "loss_scale_dynamic",
    "auto_loss_scaler_backoff",
    "auto_loss_scaler_logmax",
)
CLIPPING = ("larc", "clip_by_global_norm", "regularization_loss")
TOOLS = {
    "multitask": Tool("Multitask", ("multitask", "multitask_clip")),
    "rows": Tool("Row clipping", ("variable_clipping",)),
    "scaling": Tool("Loss scaling", SCALING),
    "masters": Tool("Float32 masters", ("mixed_precision_wrapper",)),
    "agn": Tool("Asynchronous workers", ("agn",)),
    "larc": Tool("LARC and clipping", CLIPPING),
    "novograd": Tool("NovoGrad", ("novograd",)),
    "policies": Tool("Learning-rate policies", ("lr_policies",)),
    "optimize_loss": Tool("optimize_loss", ("optimize_loss",)),
    "base_optimizers": Tool("TensorFlow 1's optimizers", ("base_optimizers",)),
}
"""Insert of a tool's page -> the tool."""


@dataclass(frozen=True)
class Report:
    """All rows of a report and the environment it was recorded in."""

    rows: Sequence[Row]
    environment: dict[str, Any]

    @cached_property
    def modes(self) -> list[str]:
        """The labels of the backends and modes in the report."""
        return _labels(self.rows)

    @cached_property
    def families(self) -> list[str]:
        """The families in the report, in the order of ``FAMILIES``."""
        present = {row.family for row in self.rows}
        return [name for name in FAMILIES if name in present]


def parity_inserts(results: Path) -> dict[str, str]:
    """Return name -> insert about parity; without a report, inserts say so."""
    report = read_report(results / "parity")
    gpu = read_report(results / "parity", "gpu")
    inserts = {
        "matrix": _matrix("Parity by family and backend", report),
        "reasons": _reasons(report) if report else _missing(COMMAND),
        "environment": _facts(report) if report else _missing(COMMAND),
        "gpu": _on_gpu(gpu) if gpu else _missing(ON_GPU),
        **{
            n: _matrix(f"{t.name}: parity", report, t.families)
            for n, t in TOOLS.items()
        },
    }
    return {f"parity_{name}": text for name, text in inserts.items()}


def ulps(distance: float | None) -> str:
    """Return a distance as text: "exact", or a number of ULP."""
    if distance is None:
        return ""
    return "exact" if distance == 0 else f"{number(distance, 2)} ULP"


def _missing(command: str) -> str:
    return render("not_measured.md.jinja", command=command)


def _matrix(
    title: str, report: Report | None, families: Sequence[str] = tuple(FAMILIES)
) -> str:
    """Return the counts of each family, by backend and mode."""
    present = [name for name in families if report and name in report.families]
    if report is None or not present:
        return _missing(COMMAND)
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in report.rows:
        cells.setdefault((row.family, _label(row)), []).append(row)
    rows = [
        [
            Cell(name, name, "code"),
            *(_counts(cells.get((name, mode), [])) for mode in report.modes),
        ]
        for name in present
    ]
    return table(title, ["Family", *report.modes], rows, style="matrix")


def _counts(rows: Sequence[Row]) -> Cell:
    """Return how many cases passed and in which way, and the largest distance."""
    status = Counter[str](row.status for row in rows)
    replayed = status["passed"] + status["failed"]
    if not replayed:
        return Cell("–", None, "none")
    ways = Counter(row.way for row in rows if row.status == "passed")
    worst = _largest(rows)
    notes = [ulps(worst)] if worst is not None else []
    if set(ways) - {WAYS["recording"]}:
        notes += [f"{ways[way]} {way}" for way in WAYS.values() if ways[way]]
    in_part = sum(row.in_part for row in rows)
    notes += [f"{in_part} in part"] if in_part else []
    notes += [f"{status[name]} {name}" for name in STATUS if status[name]]
    style = "bad" if status["failed"] else "good"
    text = f"{status['passed']} of {replayed}"
    return Cell(text, float(status["passed"]), style, tuple(notes))


def _largest(rows: Iterable[Row]) -> float | None:
    return max((row.max_ulp for row in rows if row.max_ulp is not None), default=None)


def _on_gpu(report: Report) -> str:
    title = f"Parity on {report.environment.get('gpu', 'a GPU')}"
    return f"{_matrix(title, report)}\n{_facts(report)}"


def _facts(report: Report) -> str:
    return render("facts.md.jinja", facts=report.environment)


def _reasons(report: Report) -> str:
    """Return what was left out or failed: a row for each reason."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in report.rows:
        if row.reason or row.status != "passed":
            how: str = row.status if row.status != "passed" else "passed in part"
            for reason in re.split("; (?=without )", row.reason):
                groups.setdefault((how, reason), []).append(row)
    if not groups:
        return "Every case of these families is replayed and passes on every backend.\n"
    lines = list[list[Cell | str]]()
    order = (*STATUS, "passed in part")
    for how, reason in sorted(groups, key=lambda group: order.index(group[0])):
        rows = groups[how, reason]
        count = len({row.id for row in rows})
        families = ", ".join(dict.fromkeys(row.family for row in rows))
        where = ", ".join(_labels(rows))
        why = Cell(reason, reason, "wrap")
        lines.append([why, how, families, where, Cell(str(count), float(count))])
    columns = ["Why", "Status", "Families", "Backends", "Cases"]
    return table("Cases that did not pass in full", columns, lines, style=CARDS)


def heat_map(results: Path) -> str:
    """Return tools by backends, over all modes, for the home page."""
    report = read_report(results / "parity")
    if report is None:
        return _missing(COMMAND)
    backends = list(dict.fromkeys(mode.split()[0] for mode in report.modes))
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in report.rows:
        cells.setdefault((row.family, row.backend), []).append(row)
    rows = [
        (
            tool.name,
            [
                _warm([r for f in tool.families for r in cells.get((f, backend), ())])
                for backend in backends
            ],
        )
        for tool in TOOLS.values()
        if set(tool.families) & set(report.families)
    ]
    return render(
        "heat.html.jinja",
        cases=len({row.id for row in report.rows}),
        backends=backends,
        rows=rows,
        left=f"{FEW:.0%}",
    )


def _warm(rows: Sequence[Row]) -> Cell:
    """Return the largest distance, and how many replays are skipped or in part."""
    status = Counter[str](row.status for row in rows)
    if status["failed"]:
        return Cell(f"{status['failed']} failed", None, "bad")
    if not status["passed"]:
        return Cell("–", None, "none", ("not replayed",))
    names = sum(map(_lacks_names_alone, rows))
    in_part = sum(row.in_part for row in rows) - names
    left = {"skipped": status["skipped"], "in part": in_part, "but for names": names}
    notes = [f"{n} of {len(rows)} {how}" for how, n in left.items() if n]
    worst = _largest(rows)
    style = "near" if worst else "exact"
    if status["skipped"] + in_part > FEW * len(rows):
        style = "left"
    return Cell(ulps(worst) or "raises", None, style, tuple(notes))


def _lacks_names_alone(row: Row) -> bool:
    """Whether every number of a case was compared, and no name of a tensor."""
    lacking = re.findall(r"(?:^|; )without ([^:]+):", row.reason)
    return row.in_part and set(lacking) <= {"name", "tensor_name"}


def read_report(folder: Path, name: str = "report") -> Report | None:
    """Read a published report; None if parity has not been recorded yet."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    rows = [Row.from_json(entry) for entry in json.loads(path.read_text("utf-8"))]
    about = path.with_suffix(".environment.json")
    return Report(rows, json.loads(about.read_text("utf-8")))


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
