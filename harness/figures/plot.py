"""Draw a finding: every figure as SVG (light and dark), PDF and its data as CSV.

What is drawn is the task's own (``harness.tasks.TASK.figures``); results in, files out.
The same finding gives the same bytes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure as Canvas

from harness.errors import HarnessError
from harness.figures.style import DARK, LIGHT, Theme
from harness.judgement.finding import Finding
from harness.tasks import part

__all__ = [
    "Canvas",
    "Drawing",
    "Figure",
    "Paint",
    "Theme",
    "canvas",
    "draw",
    "draw_one",
]

METADATA = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What files say of themselves: nothing that changes from day to day."""

TITLE_WIDTH = 0.95
"""The share of a figure's width that a line of its title may take: letters differ."""

LINE = 0.19
"""The height of a line of the title, in inches."""

Paint: TypeAlias = Callable[[Canvas, Theme], None]


@dataclass(frozen=True)
class Drawing:
    """A figure as a task describes it.

    Attributes:
        title: its message.
        alt: what a reader who cannot see it should know.
        caption: how to read it.
        data: what it shows; the CSV.
        size: width and height in inches.
        paint: puts it on an empty canvas in the colours of a theme.
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
    """A figure that was drawn: its words and its files."""

    name: str
    title: str
    alt: str
    caption: str
    light: Path
    dark: Path
    pdf: Path
    csv: Path


def draw(finding: Finding, folder: Path) -> list[Figure]:
    """Draw every figure of a finding into ``folder``; return them in reading order.

    Raises:
        HarnessError: the task's code cannot draw what it judged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not finding.tables:
        return []
    try:
        drawings: Iterator[Drawing] = part(finding.task, "figures").drawings(finding)
        return [draw_one(drawing, folder) for drawing in drawings]
    except OSError:
        raise
    except Exception as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        text = f"harness.tasks.{finding.task} cannot draw this finding, got {got}"
        raise HarnessError(f"{finding.experiment}: {text}.") from error


def draw_one(drawing: Drawing, folder: Path) -> Figure:
    """Draw one figure into ``folder``."""
    light, dark, pdf, csv = (
        folder / f"{drawing.name}.{end}"
        for end in ("light.svg", "dark.svg", "pdf", "csv")
    )
    _save(drawing, LIGHT, light)
    _save(drawing, DARK, dark)
    _save(drawing, LIGHT, pdf)
    drawing.data.to_csv(csv, index=False, float_format="%.6g", lineterminator="\n")
    words = (drawing.name, drawing.title, drawing.alt, drawing.caption)
    return Figure(*words, light, dark, pdf, csv)


def _save(drawing: Drawing, theme: Theme, path: Path) -> None:
    with mpl.rc_context(theme.rc):
        canvas(drawing, theme).savefig(path, metadata=METADATA[path.suffix])


def canvas(drawing: Drawing, theme: Theme) -> Canvas:
    """Return a figure, painted and under its title, in the settings of a theme.

    A title that is wider than the figure is broken, and makes it higher.
    """
    painted = Canvas(figsize=drawing.size)
    drawing.paint(painted, theme)
    look: dict[str, Any] = {"x": 0.01, "ha": "left", "weight": "bold"}
    title = painted.suptitle(drawing.title, **look, parse_math=False)
    share = title.get_window_extent().width / (painted.bbox.width * TITLE_WIDTH)
    if share > 1:
        lines = textwrap.wrap(drawing.title, int(len(drawing.title) / share))
        title.set_text("\n".join(lines))
        width, height = drawing.size
        painted.set_size_inches(width, height + (len(lines) - 1) * LINE)
    return painted
