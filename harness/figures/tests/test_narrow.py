"""Figures for phones: panels are stacked, and nothing is wider than the figure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import matplotlib as mpl
import pandas as pd
from matplotlib.text import Text

from harness.figures.narrow import NARROW, Column, fold
from harness.figures.plot import Canvas, Drawing, Paint, canvas
from harness.figures.style import LIGHT, WIDTH, Theme

COLUMN = 358
"""The width in pixels of a page's text on a phone of 390 pixels."""

LONG = "held-out loss at the end of training, over that of float32 without a loss scale"


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with mpl.rc_context(LIGHT.rc):
        yield


def painted(paint: Paint, height: float = 3.4, title: str = "Losses fall") -> Column:
    """Return a narrow figure, laid out."""
    words = {"alt": "", "caption": "", "data": pd.DataFrame()}
    drawing = Drawing("name", title, size=(WIDTH, height), paint=paint, **words)
    narrow = canvas(drawing, LIGHT, narrow=True)
    narrow.draw_without_rendering()
    assert isinstance(narrow, Column)
    return narrow


def cut(narrow: Column) -> bool:
    """Whether something of a figure lies outside of it, by more than a stroke."""
    box, (width, height) = narrow.get_tightbbox(), narrow.get_size_inches()
    edge = 0.01
    return bool(
        box.x0 < -edge
        or box.y0 < -edge
        or box.x1 > width + edge
        or box.y1 > height + edge
    )


def row(canvas: Canvas, theme: Theme) -> None:
    panels = canvas.subplots(1, 3, sharey=True)
    for panel, name in zip(panels, "abc", strict=True):
        panel.plot([0, 1000], [1, 2], color=theme.ink)
        panel.set_title(name)
        panel.set_xlabel("step")
    panels[0].set_ylabel("loss")


def test_panels_that_stand_side_by_side_are_stacked() -> None:
    boxes = [panel.get_position() for panel in painted(row).axes]
    assert len({round(box.x0, 6) for box in boxes}) == 1
    for above, below in pairwise(boxes):
        assert below.y1 < above.y0


def test_every_panel_has_the_labels_that_it_shares() -> None:
    panels = painted(row).axes
    assert [panel.get_ylabel() for panel in panels] == ["loss"] * 3
    assert [panel.get_xlabel() for panel in panels] == ["", "", "step"]


def grid(canvas: Canvas, theme: Theme) -> None:
    panels = canvas.subplots(2, 2, sharey="col")
    for panel, title in zip(panels[0], ("digit", "parity"), strict=True):
        panel.set_title(title)
    for panel, optimizer in zip(panels[:, 0], ("Adam", "SGD"), strict=True):
        panel.set_ylabel(optimizer)


def test_a_panel_of_a_grid_says_its_row_and_its_column() -> None:
    panels = painted(grid).axes
    names = [(panel.get_ylabel(), panel.get_title("left")) for panel in panels]
    rows, columns = ("Adam", "SGD"), ("digit", "parity")
    assert names == [(row, column) for row in rows for column in columns]


def many(canvas: Canvas, theme: Theme) -> None:
    panels = canvas.subplots(2, 3, sharex=True, sharey=True)
    panels[-1, -1].set_visible(False)


def test_many_panels_with_the_same_axes_stand_in_two_columns() -> None:
    places = [panel.get_position().x0 for panel in painted(many).axes]
    assert len({round(place, 2) for place in places}) == 2


def rows_without_panels(canvas: Canvas, theme: Theme) -> None:
    panels = canvas.subplots(2, 2)
    panels[1, 1].set_axis_off()
    canvas.supxlabel("workers")


def test_an_empty_panel_takes_no_room() -> None:
    narrow = painted(rows_without_panels)
    shown = [panel for panel in narrow.axes if panel.get_visible()]
    assert len(shown) == 3
    assert shown[-1].get_xlabel() == "workers"
    assert shown[-1].get_position().y0 < 0.15


def wide(canvas: Canvas, theme: Theme) -> None:
    panel = canvas.subplots()
    names = [f"{name}, {LONG}" for name in ("first", "second", "third")]
    panel.plot([1, 2], [0, 2], label=LONG)
    panel.set_yticks(range(3), names)
    panel.text(0.02, 0.5, LONG, transform=panel.transAxes)
    panel.set_xlabel(LONG)
    panel.legend()
    handles = [mpl.lines.Line2D([], [], label=f"arm {k} of ten") for k in range(10)]
    canvas.legend(handles=handles, loc="outside lower center", ncols=10)


def words_below(canvas: Canvas, theme: Theme) -> None:
    panel = canvas.subplots()
    names = ["recorded, none absent", "random, half absent", "random, most absent"]
    panel.set_xticks(range(3), names)
    panel.set_xlim(-0.5, 2.5)


def numbers_below(canvas: Canvas, theme: Theme) -> None:
    panel = canvas.subplots()
    panel.set(xscale="log", xlim=(1e6, 1))
    panel.set_xticks([10**k for k in range(7)], [f"{10**k:,}" for k in range(7)])


@pytest.mark.parametrize("paint", [row, grid, many, wide, words_below, numbers_below])
def test_everything_can_be_read_on_a_phone(paint: Paint) -> None:
    narrow = painted(paint, title=LONG)
    assert not cut(narrow)
    assert narrow.get_size_inches()[0] == NARROW
    sizes = [text.get_fontsize() for text in narrow.findobj(Text) if text.get_text()]
    assert min(sizes) / 72 * COLUMN / NARROW > 11


def test_what_lies_outside_would_be_found() -> None:
    narrow = painted(row)
    narrow.text(0.9, 0.5, "too far right")
    assert cut(narrow)


@pytest.mark.parametrize(("paint", "count"), [(words_below, 3), (numbers_below, 4)])
def test_labels_of_an_axis_do_not_touch(paint: Paint, count: int) -> None:
    (panel,) = painted(paint).axes
    labels = [label for label in panel.get_xticklabels() if label.get_text()]
    boxes = sorted(((b := t.get_window_extent()).x0, b.x1) for t in labels)
    assert len(boxes) == count
    for left, right in pairwise(boxes):
        assert left[1] < right[0]


@pytest.mark.parametrize(
    ("text", "lines"),
    [("short", 1), ("one two three four five six seven eight nine ten", 2)],
)
def test_a_text_is_broken_into_lines_of_about_the_same_length(
    text: str, lines: int
) -> None:
    artist: Any = Canvas(figsize=(5, 1)).text(0, 0, text, size=10)
    fold(artist, 250)
    lengths = [len(line) for line in artist.get_text().split("\n")]
    assert len(lengths) == lines
    assert max(lengths) - min(lengths) < 8
