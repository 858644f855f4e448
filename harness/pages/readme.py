"""The published results in the README: the parity matrix and one figure."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from harness.declarations import declare
from harness.errors import HarnessError
from harness.figures.plot import draw_one
from harness.judgement import compare
from harness.parity.row import Row
from harness.processes.children import ROOT
from harness.records.files import RESULTS
from harness.records.files import folder as record_folder
from harness.tasks import part
from lockstep.messages.errors import sentence

__all__ = ["ASSETS", "README", "REPORT", "matrix", "write_figure", "write_matrix"]

README = ROOT / "README.md"
REPORT = RESULTS / "parity" / "report.json"
ASSETS = ROOT / "docs" / "assets"
DRAWN = "absent_tasks"
"""The experiment of the figure."""

START, END = "<!-- parity matrix:", "<!-- end of the parity matrix -->"


def matrix(report: Path = REPORT) -> str:
    """Return the matrix as a Markdown table; the modes of a backend are combined."""
    rows = [Row.from_json(row) for row in json.loads(report.read_text("utf-8"))]
    backends = list(dict.fromkeys(row.backend for row in rows))
    lines = [["family", *backends], ["---"] * (len(backends) + 1)]
    for family in sorted({row.family for row in rows}):
        cells = [
            [r for r in rows if (r.family, r.backend) == (family, backend)]
            for backend in backends
        ]
        lines.append([f"`{family}`", *map(_cell, cells)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write_matrix(readme: Path = README, report: Path = REPORT) -> None:
    """Write the matrix between the two marks of the README."""
    text = readme.read_text("utf-8")
    head, start, rest = text.partition(START)
    mark, _, rest = rest.partition("\n")
    _, end, tail = rest.partition(END)
    if not (start and end):
        expected = f"the marks {START!r} and {END!r}"
        text = sentence(str(readme), expected, "none", "put them where the table goes")
        raise HarnessError(text)
    body = f"{head}{start}{mark}\n\n{matrix(report)}\n\n{end}{tail}"
    readme.write_text(body, "utf-8")


def write_figure(folder: Path = ASSETS, results: Path = RESULTS) -> list[Path]:
    """Draw the effect of absent tasks on updates, in a light and a dark theme.

    The home page shows it, too, with narrow versions for phones.

    Raises:
        HarnessError: there are no published results to draw.
    """
    is_published = record_folder(DRAWN, True, results).is_dir()
    finding = compare.compare(declare.find(DRAWN), results) if is_published else None
    if finding is None:
        remedy = f"run it: python -m harness run {DRAWN} --scale std --publish"
        raise HarnessError(sentence(DRAWN, "published results", "none", remedy))
    with tempfile.TemporaryDirectory() as scratch:
        brief = part(finding.task, "figures").brief(finding)
        figure = draw_one(brief, Path(scratch))
        wide, narrow = (
            (figure.light, figure.dark),
            (figure.narrow_light, figure.narrow_dark),
        )
        return [Path(shutil.copy(path, folder / path.name)) for path in wide + narrow]


def _cell(rows: Sequence[Row]) -> str:
    """Return how many replays passed, the largest distance, and what was left out."""
    counts: Counter[str] = Counter(row.status for row in rows)
    worst = max((row.max_ulp or 0.0 for row in rows), default=0.0)
    in_part = sum(row.in_part for row in rows)
    passed = f"{counts['passed']} passed" + (f" ({in_part} in part)" if in_part else "")
    parts = [passed, f"max {worst:.3g} ULP"]
    left = ("failed", "skipped")
    parts += [f"{counts[status]} {status}" for status in left if counts[status]]
    return ", ".join(parts)
