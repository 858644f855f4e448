"""Inserts of the parity report for hand-written pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from harness.pages.markup.tables import CARDS, Cell, Notes, table
from harness.pages.markup.templating import number, render
from harness.pages.parity.matrices import (
    BackendMode,
    Report,
    Summary,
    capabilities,
    read_report,
    tolerances,
)
from harness.parity.row import WAYS, Row

COMMAND = ".venv/bin/nox -s parity -- --all --report results/parity/report.json"
ON_GPU = (
    "python -m harness parity --backend pytorch --all --device cuda "
    "--report results/parity/gpu.json"
)


class Tool(NamedTuple):
    """A tool whose replayed cases are shown together on its page.

    Attributes:
        name: its name in a few words.
        title: the title of its table.
        families: its families of cases.
    """

    name: str
    title: str
    families: tuple[str, ...]


TOOLS = {
    "multitask": Tool(
        "Multitask",
        "Parity of the multitask wrapper and its clipping function",
        ("multitask", "multitask_clip"),
    ),
    "rows": Tool("Row clipping", "Parity of row clipping", ("variable_clipping",)),
    "scaling": Tool(
        "Loss scaling",
        "Parity of loss scaling",
        (
            "loss_scale_fixed",
            "loss_scale_dynamic",
            "auto_loss_scaler_backoff",
            "auto_loss_scaler_logmax",
        ),
    ),
    "masters": Tool(
        "Float32 masters",
        "Parity of the float32 masters",
        ("mixed_precision_wrapper",),
    ),
    "agn": Tool(
        "Asynchronous workers",
        "Parity of accumulated gradient normalization",
        ("agn",),
    ),
    "larc": Tool(
        "LARC and clipping",
        "Parity of LARC, clipping and the total of penalties",
        ("larc", "clip_by_global_norm", "regularization_loss"),
    ),
    "novograd": Tool("NovoGrad", "Parity of NovoGrad", ("novograd",)),
    "policies": Tool(
        "Learning-rate policies",
        "Parity of the learning-rate policies",
        ("lr_policies",),
    ),
    "optimize_loss": Tool(
        "optimize_loss", "Parity of optimize_loss", ("optimize_loss",)
    ),
    "base_optimizers": Tool(
        "TensorFlow 1's optimizers",
        "Parity of the optimizers of TensorFlow 1",
        ("base_optimizers",),
    ),
}
"""Insert of a tool's page -> the tool."""
STATUS = ("skipped", "failed")
IN_PART = "passed in part"


def parity_inserts(results: Path) -> dict[str, str]:
    """Return name -> insert about parity; without a report, inserts say so."""
    report = read_report(results / "parity")
    if report is None:
        texts = dict.fromkeys(
            _WRITERS, render("not_measured.md.jinja", command=COMMAND)
        )
    else:
        texts = {name: write(report) for name, write in _WRITERS.items()}
    texts["tolerances"] = _tolerances()
    texts["gpu"] = _on_gpu(read_report(results / "parity", "gpu"))
    return {f"parity_{name}": text for name, text in texts.items()}


def ulps(distance: float | None) -> str:
    """Return a distance as text: "exact", or a number of ULP."""
    if distance is None:
        return ""
    return "exact" if distance == 0 else f"{number(distance, 2)} ULP"


def _matrix(report: Report) -> str:
    return _grid(
        "Parity by family and backend", report, report.families, _modes(report)
    )


def _tool(tool: Tool, report: Report) -> str:
    present = [name for name in tool.families if name in report.families]
    if not present:
        return render("not_measured.md.jinja", command=COMMAND)
    return _grid(tool.title, report, present, _modes(report))


def _on_gpu(report: Report | None) -> str:
    """How many cases of each family pass on a GPU, and the largest distance."""
    if report is None:
        return render("not_measured.md.jinja", command=ON_GPU)
    title = f"Parity on {report.environment.get('gpu', 'a GPU')}"
    facts = render("facts.md.jinja", facts=report.environment)
    return f"{_grid(title, report, report.families, _modes(report))}\n{facts}"


def _modes(report: Report) -> dict[str, list[BackendMode]]:
    return {mode.label: [mode] for mode in report.modes}


def _grid(
    title: str,
    report: Report,
    families: Sequence[str],
    columns: Mapping[str, Sequence[BackendMode]],
) -> Markup:
    rows = [
        [
            _code(name),
            *(_verdict(report.summary(name, *modes)) for modes in columns.values()),
        ]
        for name in families
    ]
    return table(title, ["Family", *columns], rows, style="matrix")


def _verdict(summary: Summary) -> Cell:
    """Return how many cases passed, the largest distance, and what was left out."""
    counts, worst = summary.counts, summary.worst
    if not summary.replayed:
        return Cell("–", None, "none")
    parts = [ulps(worst.max_ulp)] if worst else []
    if set(summary.ways) - {WAYS["recording"]}:
        ways = WAYS.values()
        parts += [f"{summary.ways[way]} {way}" for way in ways if summary.ways[way]]
    in_part = sum(row.in_part for row in summary.rows)
    parts += [f"{in_part} in part"] if in_part else []
    parts += [f"{counts[s]} {s}" for s in STATUS if counts[s]]
    style = "bad" if counts["failed"] else "good"
    text = f"{counts['passed']} of {summary.replayed}"
    return Cell(text, float(counts["passed"]), style, tuple(parts))


def _worst(report: Report) -> str:
    """The case with the largest nonzero distance in each cell of the matrix."""
    rows = []
    for family in report.families:
        for mode in report.modes:
            row = report.summary(family, mode).worst
            if row is not None and row.max_ulp:
                rows.append([_code(family), mode.label, *_where(row)])
    if not rows:
        return "Every replayed case gives the recorded bits.\n"
    columns = ["Family", "Backend", "Case", "ULP", "Raw ULP", "First difference"]
    title = "The largest distance of each family on each backend"
    return table(title, columns, rows)


def _where(row: Row) -> list[Cell | str]:
    first = row.first_divergence
    cells = [_code(row.id), _distance(row.max_ulp), _distance(row.max_ulp_raw)]
    if first is None:
        return [*cells, ""]
    place = f"{first.quantity}, step {first.step + 1}, element {first.index}"
    values = f"{_decimal(first.got)}, expected {_decimal(first.expected)}"
    return [*cells, Cell(place, place, "wrap", (values,))]


def _decimal(value: str) -> str:
    """Return a value without the hexadecimal form that follows in parentheses."""
    return value.split(" (")[0]


def _reasons(report: Report) -> str:
    notes = Notes()
    rows: list[list[Cell | str]] = [
        [
            _code(family),
            _code(kind),
            IN_PART if status == "passed" else status,
            backends,
            Cell(str(n), float(n), notes=notes.mark(why)),
        ]
        for status in (*STATUS, "passed")
        for family, kind, backends, why, n in report.reasons(status)
    ]
    if not rows:
        return "Every case of these families is replayed and passes on every backend.\n"
    columns = ["Family", "Kind", "Status", "Backends", "Cases"]
    title = "Cases that did not pass in full, and why"
    return f"{table(title, columns, rows)}\n{notes.listed()}"


def _cases(report: Report) -> str:
    """All cases: one row per case, one column per backend and mode."""
    rows: list[list[Cell | str]] = []
    for name, rows_of_case in report.cases(*report.families).items():
        by_mode = {(row.backend, row.mode): row for row in rows_of_case}
        rows_by_mode = [by_mode.get((m.backend, m.mode)) for m in report.modes]
        outcomes = [_outcome(row) for row in rows_by_mode]
        rows.append([Cell(name, name, "code", (rows_of_case[0].kind,)), *outcomes])
    columns = ["Case", *(mode.label for mode in report.modes)]
    title = "Every case on every backend: the largest distance"
    return table(title, columns, rows, filtered=True, style="matrix")


def _outcome(row: Row | None) -> Cell:
    if row is None:
        return Cell("–", None, "none")
    if row.status in STATUS:
        failed = row.status == "failed"
        sort, style = (float("inf"), "bad") if failed else (None, "none")
        return Cell(row.status, sort, style)
    notes = (f"{row.way}: {row.difference}",) if row.difference else ()
    if row.max_ulp is None:
        raises = row.against in ("recording", "refusal")
        return Cell("raises" if raises else "works", 0.0, "good", notes)
    return Cell(ulps(row.max_ulp), row.max_ulp, "good", notes)


def _tolerances() -> str:
    """The tables of tolerances and of missing counterparts, which decide on a case."""
    allowed = _allowed("the recording", "tolerance")
    by_rule = _allowed("the framework's own rule in NumPy", "rule")
    tables = Markup(f"{allowed}\n{by_rule}")
    return render("tolerances.md.jinja", allowed=tables, excused=_excused())


def _allowed(of: str, name: str) -> Markup:
    rows: list[list[Cell | str]] = [
        [*_selectors(entry), _limit(entry["ulp"]), _prose(entry["reason"])]
        for entry in tolerances(name)
    ]
    columns = ["Backend", "Family or optimizer", "Gradients", "Allowed", "Why not less"]
    title = f"Tolerances from {of}; the first line that matches decides"
    return table(title, columns, rows, style=CARDS)


def _excused() -> Markup:
    rows: list[list[Cell | str]] = [
        [
            ", ".join(entry["backends"]),
            *_selectors(entry)[1:],
            _code(entry["quantity"].rstrip("/")) if "quantity" in entry else "all",
            _prose(entry["reason"]),
        ]
        for entry in capabilities()
    ]
    columns = ["Backends", "Cases", "Gradients", "Not compared", "Reason"]
    return table("What a backend has no counterpart for", columns, rows, style=CARDS)


def _prose(text: str) -> Cell:
    """Return a cell that is wide enough for a sentence, even in a scrolling table."""
    return Cell(text, text, "wrap")


def _limit(ulp: float) -> Cell:
    return Cell(f"{number(ulp)} ULP", float(ulp))


def _selectors(entry: dict[str, Any]) -> list[str]:
    subjects = [
        *entry.get("family", []),
        *entry.get("kind", []),
        *entry.get("optimizer", []),
        *(f"with {name}" for name in entry.get("given", [])),
    ]
    if "elements" in entry:
        subjects.append(f"from {entry['elements']} elements on")
    arguments = entry.get("arguments", {})
    subjects += [f"{name} = {value:g}" for name, value in arguments.items()]
    if "dtype" in entry:
        subjects.append(entry["dtype"])
    if "finite" in entry:
        subjects.append("not finite")
    sparse = {True: "sparse", False: "dense", None: "any"}[entry.get("sparse")]
    return [
        ", ".join(entry.get("backend", [])) or "any",
        ", ".join(subjects) or "any",
        sparse,
    ]


def _environment(report: Report) -> str:
    return render("facts.md.jinja", facts=report.environment)


def _distance(value: float | None) -> Cell:
    return Cell("–", None) if value is None else Cell(number(value), float(value))


def _code(text: str) -> Cell:
    return Cell(text, text, "code")


_WRITERS: dict[str, Callable[[Report], str]] = {
    "cases": _cases,
    "environment": _environment,
    "matrix": _matrix,
    "reasons": _reasons,
    "worst": _worst,
    **{name: partial(_tool, tool) for name, tool in TOOLS.items()},
}
