"""Narrow figures for phones, with the panels stacked.

Tasks need no code for this. They paint on a ``Column`` as on any figure of the width of
a page. It stacks the panels, and breaks texts that are too wide.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

__all__ = ["NARROW", "Column", "fold"]

NARROW = 3.55
"""The width in inches. On a phone it is 358 pixels wide, so 8 points are 11 pixels."""

AROUND = 0.9
"""The height that the title and the legend of a wide figure take, in inches."""

LOWEST = 1.6
"""The minimum height of a panel, in inches."""

MANY = 4
"""If more panels than these share both axes, they are in two columns."""

LINE = 0.15
"""The height of a line of small text, in inches."""

INSIDE, BESIDE = 0.85, 0.36
"""The maximum width of texts in a panel, and of labels beside it, as a share."""

BROAD = 0.6
"""The share of the width above which the legend of a panel moves below it."""

EDGE = 0.1
"""The distance of such a legend from the left edge, in inches."""

GAP = 4
"""The minimum distance of two labels of an axis, in pixels."""

Sharing: TypeAlias = bool | Literal["none", "all", "row", "col"]


class Column(Canvas):
    """A narrow figure whose panels are stacked.

    Attributes:
        below: the common label of the horizontal axes.
    """

    below = ""

    def subplots(
        self,
        nrows: int = 1,
        ncols: int = 1,
        *,
        sharex: Sharing = False,
        sharey: Sharing = False,
        squeeze: bool = True,
        **_: Any,
    ) -> Any:
        """Add stacked panels, with axes shared as in a grid of this shape."""
        count, whole = nrows * ncols, {sharex, sharey} <= {True, "all"}
        self.across = 2 if whole and count > MANY else 1
        self.down = -(-count // self.across)
        height = (self.get_size_inches()[1] - AROUND) / nrows
        self.set_size_inches(NARROW, AROUND + self.down * max(height, LOWEST))
        cells = self.add_gridspec(self.down, self.across)
        self.grid = np.empty((nrows, ncols), object)
        for place, (row, column) in enumerate(np.ndindex(nrows, ncols)):
            self.grid[row, column] = self.add_subplot(
                cells[divmod(place, self.across)],
                sharex=_model(self.grid, sharex, row, column),
                sharey=_model(self.grid, sharey, row, column),
            )
        if not squeeze:
            return self.grid
        return self.grid.item() if count == 1 else self.grid.squeeze()

    def legend(self, *args: Any, ncols: int = 1, **look: Any) -> Legend:
        """Add a legend with as many columns as fit."""
        for columns in range(ncols, 0, -1):
            legend = super().legend(*args, ncols=columns, **look)
            if columns == 1 or _width(legend) < self.bbox.width:
                break
            legend.remove()
        self.grow((-(-len(legend.get_texts()) // columns) - 1) * LINE)
        return legend

    def colorbar(self, mappable: Any, *args: Any, **look: Any) -> Any:
        """Add a color bar below the panels."""
        return super().colorbar(mappable, *args, **{**look, "location": "bottom"})

    def supxlabel(self, t: str, **_: Any) -> None:  # type: ignore[override]
        """Set the common horizontal label, which is shown below the last panel."""
        self.below = t

    def supylabel(self, t: str, **_: Any) -> None:  # type: ignore[override]
        """Set the vertical label of every panel."""
        for panel in self.grid.flat:
            panel.set_ylabel(t)

    def grow(self, height: float) -> None:
        """Increase the height of the figure by ``height`` inches."""
        width, before = self.get_size_inches()
        self.set_size_inches(width, before + height)

    def settle(self) -> None:
        """Label every panel; break texts that are too wide and drop crowded ticks."""
        for row, column in np.ndindex(self.grid.shape):
            _complete(self.grid, row, column)
        panels = self._used()
        panels[-1].set_xlabel(self.below or panels[-1].get_xlabel())
        for panel, below in zip(panels, panels[self.across :], strict=False):
            if panel.get_xlabel() == below.get_xlabel():
                panel.set_xlabel("")
        for place, panel in enumerate(panels):
            if place % self.across:
                panel.set_ylabel("")
                panel.tick_params(labelleft=False)
            self._fold_inside(panel)
        engine = self.get_layout_engine()
        assert engine is not None  # the themes ask for one
        engine.execute(self)
        for panel in panels:
            self._thin(panel)
            self._fold_around(panel)

    def _used(self) -> list[Axes]:
        """Return the visible panels; remove empty rows at the end."""
        panels = [
            panel for panel in self.grid.flat if panel.get_visible() and panel.axison
        ]
        empty = self.down - len(panels)
        if self.across == 1 and empty:
            for panel in self.grid.flat[len(panels) :]:
                panel.set_visible(False)
            cells = panels[0].get_gridspec()
            cells.set_height_ratios([1] * len(panels) + [0.001] * empty)
            height = self.get_size_inches()[1]
            self.grow((AROUND - height) * empty / self.down)
            self.down = len(panels)
        return panels

    def _fold_inside(self, panel: Axes) -> None:
        """Break labels beside a panel and texts in it; make the figure high enough."""
        width, height = self.bbox.width, self.get_size_inches()[1] - AROUND
        labels = panel.get_yticklabels()
        more = 0.0
        if any(_width(label) > BESIDE * width for label in labels):
            for label in labels:
                fold(label, BESIDE * width)
            names = [label.get_text() for label in labels]
            panel.set_yticks(panel.get_yticks(), names)
            needed = len(names) * _most_lines(labels) * LINE
            more = max(0, needed - 0.8 * height / self.down)
        texts = [text for text in panel.texts if type(text) is Text]
        before = _most_lines(texts)
        _refold(panel.texts, INSIDE * width - max(map(_width, labels), default=0))
        more += len(texts) * (_most_lines(texts) - before) * LINE
        self.grow(more * self.down)
        legend = panel.get_legend()
        if legend is not None and _width(legend) > BROAD * width:
            self._put_below(panel, legend)

    def _fold_around(self, panel: Axes) -> None:
        """Break labels and titles to fit the panel, whose size is known by now."""
        box = panel.get_window_extent()
        room = 2 * (self.bbox.x1 - (box.x0 + box.x1) / 2)
        fold(panel.xaxis.label, box.width if self.across > 1 else room)
        fold(panel.yaxis.label, 1.25 * box.height, "height")
        fold(panel._left_title, box.width)  # type: ignore[attr-defined]
        _refold(panel.texts, box.width)

    def _thin(self, panel: Axes) -> None:
        """If labels of the horizontal axis touch: break or turn names, drop numbers."""
        axis = panel.xaxis
        labels = [label for label in axis.get_ticklabels() if label.get_text()]
        labels.sort(key=lambda label: label.get_window_extent().x0)
        stride = 1
        while _touching(labels[::stride]):
            stride += 1
        are_names = isinstance(axis.get_major_locator(), FixedLocator)
        if stride > 1 and are_names and axis.get_scale() == "linear":
            self._fold_names(panel, labels)
        elif stride > 1:
            places = [label.get_position()[0] for label in labels]
            axis.set_major_locator(FixedLocator(places[::stride]))

    def _fold_names(self, panel: Axes, labels: list[Text]) -> None:
        height = max(label.get_window_extent().height for label in labels)
        for label in labels:
            fold(label, panel.bbox.width / len(labels) - GAP)
        names = {label.get_position()[0]: label.get_text() for label in labels}
        panel.set_xticks(list(names), list(names.values()))
        if _touching(labels):
            panel.xaxis.set_tick_params(labelrotation=90)
            higher = max(map(_width, labels)) - height
        else:
            higher = max(label.get_window_extent().height for label in labels) - height
        self.grow(higher / self.dpi)

    def _put_below(self, panel: Axes, legend: Legend) -> None:
        """Put the legend of a panel under its horizontal axis."""
        under = panel.xaxis.get_tightbbox()
        assert under is not None  # the axis is visible
        depth = (panel.bbox.y0 - under.y0) / self.dpi + 0.05
        texts = legend.get_texts()
        handles = _width(legend) - max(map(_width, texts))
        for text in texts:
            fold(text, INSIDE * self.bbox.width - handles)
        move = ScaledTranslation(0, -depth, self.dpi_scale_trans)
        legend.set_loc("upper left")
        below = blended_transform_factory(self.dpi_scale_trans, panel.transAxes + move)
        legend.set_bbox_to_anchor((EDGE, 0), below)
        self.grow(legend.get_window_extent().height / self.dpi)


def fold(text: Text, limit: float, side: str = "width") -> None:
    """Break the lines of a text, until it is within ``limit`` pixels.

    The parts of a line have about the same length.
    """
    lines = text.get_text().split("\n")
    longest = max(map(len, lines))
    length = getattr(text.get_window_extent(), side)
    while length > limit and longest > 1:
        longest = min(longest - 1, int(longest * limit / length))
        text.set_text(
            "\n".join(part for line in lines for part in _parts(line, longest))
        )
        length = getattr(text.get_window_extent(), side)


def _refold(texts: Iterable[Text], limit: float) -> None:
    """Remove the line breaks of texts wider than ``limit``, then break them to fit."""
    for text in texts:
        if not text.get_rotation() and _width(text) > limit:
            text.set_text(text.get_text().replace("\n", " "))
            fold(text, limit)


def _parts(line: str, longest: int) -> list[str]:
    """Return a line in as few parts as possible, of about the same length."""
    parts = textwrap.wrap(line, longest, break_long_words=False)
    for shorter in range(longest - 1, len(line) // len(parts), -1):
        even = textwrap.wrap(line, shorter, break_long_words=False)
        if len(even) > len(parts) or max(map(len, even)) > longest:
            break
        parts = even
    return parts


def _model(grid: Any, sharing: Sharing, row: int, column: int) -> Axes | None:
    """Return the panel whose axis is shared: the first of the row, column or grid."""
    places = {"row": (row, 0), "col": (0, column), "all": (0, 0), True: (0, 0)}
    return grid[places[sharing]] if sharing in places else None


def _complete(grid: Any, row: int, column: int) -> None:
    """Set a panel's missing title and labels from its row and column."""
    panel, first, top, last = (
        grid[at] for at in ((row, column), (row, 0), (0, column), (-1, column))
    )
    if not panel.get_title("left"):
        panel.set_title(top.get_title("left"))
    if not panel.get_xlabel():
        panel.set_xlabel(last.get_xlabel())
    is_same = panel.get_shared_y_axes().joined(panel, first)
    if not panel.get_ylabel() and (is_same or len(grid) > 1):
        panel.set_ylabel(first.get_ylabel())


def _touching(labels: Sequence[Text]) -> bool:
    boxes = [label.get_window_extent() for label in labels]
    return any(a.x1 + GAP > b.x0 for a, b in pairwise(boxes))


def _most_lines(texts: Any) -> int:
    return max((text.get_text().count("\n") + 1 for text in texts), default=1)


def _width(artist: Any) -> float:
    width: float = artist.get_window_extent().width
    return width
