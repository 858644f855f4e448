"""What `harness pages --docs` writes: costs, figures, scripts and their outputs."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from harness.bench import compare as bench
from harness.bench import declare as declare_bench
from harness.declarations import declare
from harness.errors import HarnessError
from harness.figures.plot import draw_one, svg_of
from harness.figures.style import LIGHT, in_dark
from harness.judgement import compare
from harness.processes.children import ROOT
from harness.records.files import RESULTS
from harness.records.files import folder as record_folder
from harness.tasks import part
from lockstep.errors import sentence

README = ROOT / "README.md"
ASSETS = ROOT / "docs" / "assets"
DRAWN = "absent_tasks_tuned"
"""The experiment of the figure."""

EXAMPLES = ROOT / "docs" / "examples"
ILLUSTRATIONS = ("lost_updates", "policy_curves", "scaler_limits", "adam_epsilons")
"""The scripts of tools' pages that have a function ``draw(figure)``."""

SIZE = (4.4, 2.8)
"""The size of their figures in inches, 422 pixels wide in a browser."""

START, END = "<!-- costs:", "<!-- end of the costs -->"


def write_docs() -> list[Path]:
    """Write costs and figure of README.md, and the scripts and outputs on pages."""
    write_costs()
    return [README, *write_figure(), *write_illustrations(), *write_quoted()]


def costs(results: Path = RESULTS) -> str:
    """Return two sentences: a large step beside its peer, and a small one."""
    large = _row("loss_scaling", "fused Adam, 23M parameters", results)
    small = _row("small_steps", "multitask", results)
    return (
        "On one CPU thread, a PyTorch step of fused Adam with 23M parameters, a scaled "
        f"loss and clipped gradients takes {large['value']:.2f} times as long as with "
        "`GradScaler` and `clip_grad_norm_`. On 20 small tensors, where nearly all of "
        f"the time is Python's, the multitask wrapper adds {small['value']:.0f} µs to "
        "a step.\n"
    )


def _row(benchmark: str, what: str, results: Path) -> dict[Any, Any]:
    """Return the first row of a benchmark's table that measures ``what``."""
    finding = bench.compare(declare_bench.find(benchmark), results)
    if finding is None:
        remedy = f"measure it: python -m harness bench {benchmark}"
        raise HarnessError(sentence(benchmark, "published results", "none", remedy))
    table = finding.tables["rows"]
    rows: list[dict[Any, Any]] = table[table["what"] == what].to_dict("records")
    return rows[0]


def write_costs(readme: Path = README, results: Path = RESULTS) -> None:
    """Write the costs between the two marks of the README."""
    text = readme.read_text("utf-8")
    head, start, rest = text.partition(START)
    mark, _, rest = rest.partition("\n")
    _, end, tail = rest.partition(END)
    written = f"{head}{start}{mark}\n\n{costs(results)}\n{end}{tail}"
    readme.write_text(written, "utf-8")


def write_figure(folder: Path = ASSETS, results: Path = RESULTS) -> list[Path]:
    """Draw the tuned losses with absent tasks, in a light and a dark theme.

    The home page shows it, too.

    Raises:
        HarnessError: there are no published results to draw.
    """
    is_published = record_folder(DRAWN, True, results).is_dir()
    finding = compare.compare(declare.find(DRAWN), results) if is_published else None
    if finding is None:
        remedy = f"run it: python -m harness run {DRAWN} --scale std --publish"
        raise HarnessError(sentence(DRAWN, "published results", "none", remedy))
    with tempfile.TemporaryDirectory() as scratch:
        brief = part(finding.task, "report").brief(finding)
        figure = draw_one(brief, Path(scratch))
        return [
            Path(shutil.copy(path, folder / path.name))
            for path in (figure.light, figure.dark)
        ]


def write_illustrations(folder: Path = ASSETS) -> list[Path]:
    """Run the example scripts that draw, and write their figures in both themes."""
    files = []
    for name in ILLUSTRATIONS:
        with contextlib.redirect_stdout(io.StringIO()):
            script = runpy.run_path(str(EXAMPLES / f"{name}.py"))
        with mpl.rc_context(LIGHT.rc):
            painted = Canvas(figsize=SIZE)
            script["draw"](painted)
            light = svg_of(painted)
        for theme, svg in (("light", light), ("dark", in_dark(light))):
            files.append(folder / f"{name}.{theme}.svg")
            files[-1].write_text(svg, "utf-8", newline="\n")
    return files


DOCS = ROOT / "docs"
QUOTED = re.compile(
    r"^( *)<!-- (examples/\S+) -->\n *(```[^\n]*)\n.*?^ *```$", re.MULTILINE | re.DOTALL
)


def with_files(page: str, docs: Path = DOCS) -> str:
    """Return a page in which each such fence has the text of its file."""

    def fence(match: re.Match[str]) -> str:
        indent, path, opening = match.groups()
        text = (docs / path).read_text("utf-8").strip()
        lines = [f"<!-- {path} -->", opening, *text.splitlines(), "```"]
        return "\n".join(f"{indent}{line}" if line else "" for line in lines)

    return QUOTED.sub(fence, page)


def write_quoted(docs: Path = DOCS) -> list[Path]:
    """Write the pages whose files have changed; return them."""
    changed = []
    for path in sorted(docs.rglob("*.md")):
        page = path.read_text("utf-8")
        if "generated" not in path.parts and (new := with_files(page, docs)) != page:
            path.write_text(new, "utf-8", newline="\n")
            changed.append(path)
    return changed
