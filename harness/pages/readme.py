"""What `harness pages --docs` writes: committed figures, and scripts with outputs."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import tempfile
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from harness.declarations import declare
from harness.errors import HarnessError
from harness.figures.plot import draw_one, svg_of
from harness.figures.style import RC, in_dark
from harness.judgement import compare
from harness.processes.children import ROOT
from harness.records.files import RESULTS
from harness.records.files import folder as record_folder
from harness.tasks import part
from lockstep.errors import sentence

DOCS = ROOT / "docs"
ASSETS = DOCS / "assets"
DRAWN = "absent_tasks_tuned"
"""The experiment of the figure of README.md."""

ILLUSTRATIONS = ("lost_updates", "policy_curves", "scaler_limits", "adam_epsilons")
"""The scripts of tools' pages that have a function ``draw(figure)``."""

SIZE = (4.4, 2.8)
"""The size of their figures in inches, 422 pixels wide in a browser."""


def write_docs() -> list[Path]:
    """Write the figures, and the scripts and outputs on pages; return the files."""
    return [*write_figure(), *write_illustrations(), *write_quoted()]


def write_figure(folder: Path = ASSETS, results: Path = RESULTS) -> list[Path]:
    """Draw the tuned losses with absent tasks, in a light and a dark theme.

    README.md and the home page show it.

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
        light, _, _ = draw_one(brief, Path(scratch)).files
        return _write_themes(folder, brief.name, light.read_text("utf-8"))


def write_illustrations(folder: Path = ASSETS) -> list[Path]:
    """Run the example scripts that draw, and write their figures in both themes."""
    files = []
    for name in ILLUSTRATIONS:
        with contextlib.redirect_stdout(io.StringIO()):
            script = runpy.run_path(str(DOCS / "examples" / f"{name}.py"))
        with mpl.rc_context(RC):
            painted = Canvas(figsize=SIZE)
            script["draw"](painted)
            files += _write_themes(folder, name, svg_of(painted))
    return files


def _write_themes(folder: Path, name: str, light: str) -> list[Path]:
    files = []
    for theme, svg in (("light", light), ("dark", in_dark(light))):
        files.append(folder / f"{name}.{theme}.svg")
        files[-1].write_text(svg, "utf-8", newline="\n")
    return files


QUOTED = re.compile(
    r"^( *)<!-- (examples/\S+) -->\n *(```[^\n]*)\n.*?^ *```$", re.MULTILINE | re.DOTALL
)


def write_quoted(docs: Path = DOCS) -> list[Path]:
    """Write the pages whose files have changed; return them."""
    changed = []
    for path in sorted(docs.rglob("*.md")):
        page = path.read_text("utf-8")
        if "generated" not in path.parts and (new := with_files(page, docs)) != page:
            path.write_text(new, "utf-8", newline="\n")
            changed.append(path)
    return changed


def with_files(page: str, docs: Path = DOCS) -> str:
    """Return a page in which each such fence has the text of its file."""

    def fence(match: re.Match[str]) -> str:
        indent, path, opening = match.groups()
        text = (docs / path).read_text("utf-8").strip()
        lines = [f"<!-- {path} -->", opening, *text.splitlines(), "```"]
        return "\n".join(f"{indent}{line}" if line else "" for line in lines)

    return QUOTED.sub(fence, page)
