"""Draw the figures of a finding as SVG (light and dark) and CSV.

The content comes from the task (``harness.tasks.TASK.report``), or from
``harness.bench.figures`` for every benchmark. The same finding gives the same bytes.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TypeAlias

import matplotlib as mpl
import pandas as pd
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

from harness.errors import HarnessError
from harness.figures.style import LIGHT, RC, Theme, in_dark
from harness.judgement.finding import PREDICTIONS, Finding
from harness.tasks import TASKS, part

TITLE_WIDTH = 0.95
"""The maximum length of a line of the title, as a share of the figure's width."""

LINE = 0.19
"""The height of a line of the title, in inches."""

Paint: TypeAlias = Callable[[Canvas, Theme], None]


@dataclass(frozen=True)
class Drawing:
    """The description of a figure by a task.

    Attributes:
        title: its message.
        alt: the text for readers who cannot see it.
        caption: how to read it.
        data: the data that it shows, written as CSV.
        size: width and height in inches.
        paint: paints it on an empty canvas in the colours of a theme.
    """

    name: str
    title: str
    alt: str
    caption: str
    data: pd.DataFrame
    size: tuple[float, float]
    paint: Paint


@dataclass(frozen=True)
class Figure:
    """A drawn figure: its texts and its files.

    Attributes:
        files: the SVG for light pages, that for dark pages, and the data as CSV.
        size: width and height in pixels. With them, a browser reserves the space, so
            the page does not move when the file is loaded.
    """

    name: str
    title: str
    alt: str
    caption: str
    files: tuple[Path, Path, Path]
    size: tuple[int, int]


def draw(finding: Finding, folder: Path) -> list[Figure]:
    """Draw every figure of a finding into ``folder``; return them in reading order.

    Raises:
        HarnessError: the task's code fails to draw the finding.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not finding.tables.keys() - {PREDICTIONS}:
        return []
    try:
        return [draw_one(drawing, folder) for drawing in drawings_of(finding)]
    except OSError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        text = f"harness.tasks.{finding.task} cannot draw this finding, got {got}"
        raise HarnessError(f"{finding.experiment}: {text}.") from error


def drawings_of(finding: Finding) -> Iterator[Drawing]:
    """Yield the drawings of a finding; all benchmarks have the same."""
    if finding.task in TASKS:
        figures = part(finding.task, "report")
    else:
        figures = importlib.import_module("harness.bench.figures")
    yield from figures.drawings(finding)


def draw_one(drawing: Drawing, folder: Path) -> Figure:
    """Draw one figure into ``folder``."""
    with mpl.rc_context(RC):
        painted = canvas(drawing)
        svg = svg_of(painted)
    light, dark, data = (
        folder / f"{drawing.name}.{end}" for end in ("light.svg", "dark.svg", "csv")
    )
    # Painting it again in other colours would take much longer.
    for path, text in ((light, svg), (dark, in_dark(svg))):
        path.write_text(text, "utf-8", newline="\n")
    drawing.data.to_csv(data, index=False, float_format="%.6g", lineterminator="\n")
    width, height = painted.bbox.size
    return Figure(
        drawing.name,
        drawing.title,
        drawing.alt,
        drawing.caption,
        (light, dark, data),
        (round(width), round(height)),
    )


def draw_pdf(finding: Finding, folder: Path) -> list[Path]:
    """Draw every figure of a finding as PDF; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for drawing in drawings_of(finding):
        files.append(folder / f"{drawing.name}.pdf")
        with mpl.rc_context(RC):
            canvas(drawing).savefig(files[-1])
    return files


def svg_of(painted: Canvas) -> str:
    """Return a painted figure as SVG; ``savefig`` would draw it twice.

    It has no metadata that change from day to day.
    """
    content, target = StringIO(), FigureCanvasSVG(painted)
    none = {"Date": None, "Creator": None}
    target.print_svg(content, metadata=none)  # type: ignore[no-untyped-call]
    return content.getvalue()


def canvas(drawing: Drawing) -> Canvas:
    """Return a painted figure with its title.

    A title that is wider than the figure is broken, and the figure becomes higher.
    """
    painted = Canvas(figsize=drawing.size)
    drawing.paint(painted, LIGHT)
    title = painted.suptitle(
        drawing.title, x=0.01, ha="left", weight="bold", parse_math=False
    )
    _fold(title, painted.bbox.width * TITLE_WIDTH)
    width, height = painted.get_size_inches()
    painted.set_size_inches(width, height + title.get_text().count("\n") * LINE)
    return painted


def _fold(text: Text, limit: float) -> None:
    """Break a text into as few even lines as fit into ``limit`` pixels."""
    words = text.get_text()
    lines = 1
    while text.get_window_extent().width > limit and lines < len(words.split()):
        lines += 1
        length = -(-len(words) // lines)
        while len(textwrap.wrap(words, length)) > lines:
            length += 1
        text.set_text(textwrap.fill(words, length))
