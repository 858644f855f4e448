"""Draw the figures of a finding as SVG (light, dark, narrow), PDF and CSV.

The content comes from the task (``harness.tasks.TASK.figures``), or from
``harness.bench.figures`` for every benchmark. The same finding gives the same bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import pandas as pd
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from harness.errors import HarnessError
from harness.figures.narrow import Column, fold
from harness.figures.style import DARK, LIGHT, Theme, in_dark
from harness.figures.svg import compact
from harness.judgement.finding import Finding
from harness.tasks import TASKS, part

__all__ = [
    "Canvas",
    "Drawing",
    "Figure",
    "Paint",
    "Theme",
    "canvas",
    "draw",
    "draw_one",
    "drawings_of",
]

SVG_METADATA = {"Date": None, "Creator": None}
PDF_METADATA = {"CreationDate": None, "Creator": None, "Producer": None}
"""The metadata of files, without anything that changes from day to day."""

NARROW_ENDS = ("narrow.light.svg", "narrow.dark.svg")
"""The suffixes of the files for phones; there is no PDF for phones."""

TITLE_WIDTH = 0.95
"""The maximum length of a line of the title, as a share of the figure's width."""

LINE = 0.19
"""The height of a line of the title, in inches."""

Paint: TypeAlias = Callable[[Canvas, Theme], None]
Size: TypeAlias = tuple[int, int]


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
        narrow_light, narrow_dark: the files for phones.
        size, narrow_size: width and height in pixels. With them, a browser reserves the
            space, so the page does not move when the file is loaded.
    """

    name: str
    title: str
    alt: str
    caption: str
    light: Path
    dark: Path
    pdf: Path
    csv: Path
    narrow_light: Path
    narrow_dark: Path
    size: Size
    narrow_size: Size


def draw(finding: Finding, folder: Path) -> list[Figure]:
    """Draw every figure of a finding into ``folder``; return them in reading order.

    Raises:
        HarnessError: the task's code fails to draw the finding.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not finding.tables:
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
        figures = part(finding.task, "figures")
    else:
        figures = importlib.import_module("harness.bench.figures")
    yield from figures.drawings(finding)


def draw_one(drawing: Drawing, folder: Path) -> Figure:
    """Draw one figure into ``folder``, in the width of a page and of a phone."""
    light, dark, pdf, csv, narrow_light, narrow_dark = (
        folder / f"{drawing.name}.{end}"
        for end in ("light.svg", "dark.svg", "pdf", "csv", *NARROW_ENDS)
    )
    with mpl.rc_context(LIGHT.rc):
        painted = canvas(drawing, LIGHT)
        _write_svg(painted, light)
        _write_pdf(painted, pdf)
        column = canvas(drawing, LIGHT, narrow=True)
        _write_svg(column, narrow_light)
    _write_dark(drawing, light, dark)
    _write_dark(drawing, narrow_light, narrow_dark, narrow=True)
    drawing.data.to_csv(csv, index=False, float_format="%.6g", lineterminator="\n")
    words = (drawing.name, drawing.title, drawing.alt, drawing.caption)
    files = (light, dark, pdf, csv, narrow_light, narrow_dark)
    return Figure(*words, *files, _pixels(painted), _pixels(column))


def _pixels(painted: Canvas) -> Size:
    width, height = painted.bbox.size
    return round(width), round(height)


def _write_svg(painted: Canvas, path: Path) -> None:
    """Write a painted figure as SVG, without ``savefig``, which would draw it twice."""
    content, target = StringIO(), FigureCanvasSVG(painted)
    target.print_svg(content, metadata=SVG_METADATA)  # type: ignore[no-untyped-call]
    path.write_text(compact(content.getvalue()), "utf-8", newline="\n")


def _write_dark(
    drawing: Drawing, light: Path, dark: Path, narrow: bool = False
) -> None:
    """Write a figure in the dark theme, with the text of the light one.

    Painting it again takes much longer. It is only necessary for an image, whose pixels
    have their colours in them.
    """
    svg = light.read_text("utf-8")
    if "<image" in svg:
        with mpl.rc_context(DARK.rc):
            _write_svg(canvas(drawing, DARK, narrow), dark)
    else:
        dark.write_text(in_dark(svg), "utf-8", newline="\n")


def _write_pdf(painted: Canvas, path: Path) -> None:
    """Write a figure as PDF, with the layout of the SVG written before."""
    painted.set_layout_engine("none")
    target = FigureCanvasPdf(painted)
    target.print_pdf(path, metadata=PDF_METADATA)  # type: ignore[no-untyped-call]


def canvas(drawing: Drawing, theme: Theme, narrow: bool = False) -> Canvas:
    """Return a painted figure with its title, in the settings of a theme.

    A title that is wider than the figure is broken, and the figure becomes higher. A
    ``narrow`` figure is for a phone.
    """
    painted = (Column if narrow else Canvas)(figsize=drawing.size)
    drawing.paint(painted, theme)
    look: dict[str, Any] = {"x": 0.01, "ha": "left", "weight": "bold"}
    title = painted.suptitle(drawing.title, **look, parse_math=False)
    fold(title, painted.bbox.width * TITLE_WIDTH)
    width, height = painted.get_size_inches()
    painted.set_size_inches(width, height + title.get_text().count("\n") * LINE)
    if isinstance(painted, Column):
        painted.settle()
    return painted
