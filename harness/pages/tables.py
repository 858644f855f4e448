"""Tables as HTML that a reader can sort and filter (docs/assets/tables.js)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from markupsafe import Markup

from harness.judgement import verdicts
from harness.pages.templating import fact, number, render

CARDS = "ls-cards"
"""The style of a table of texts: on a phone each row is a card."""

PAIRS = f"{CARDS} pairs"
"""The same, with pairs of cells side by side; all cells but the first are short."""


@dataclass(frozen=True)
class Cell:
    """One cell: its text, its sort key (None sorts last), its style and its notes."""

    text: str
    sort: float | str | None = None
    style: str = ""
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str | None:
        """The sort key: empty for last, None if the text itself is the key."""
        if self.sort is None:
            return ""
        return None if str(self.sort) == self.text or self._is_plain else str(self.sort)

    @property
    def _is_plain(self) -> bool:
        """Whether the text is the sort key as a whole number, as in JavaScript."""
        return isinstance(self.sort, float) and self.text == f"{self.sort:.0f}"


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell | str]],
    filtered: bool = False,
    style: str = "",
) -> Markup:
    """Return a table in its own scroll frame; ``filtered`` adds a filter."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [
        any(isinstance(row[k].sort, float) for row in cells)
        for k, _ in enumerate(columns)
    ]
    heads = list(zip(columns, numeric, strict=True))
    words = {"caption": caption, "style": style, "filtered": filtered}
    words["cards"] = CARDS in style
    # Only tables of texts are in the search index, because nobody searches numbers.
    words["numbers"] = any(numeric) and (
        2 * sum(numeric) > len(columns) or not words["cards"]
    )
    return Markup(render("table.html.jinja", heads=heads, rows=cells, **words))


def frame_table(caption: str, frame: pd.DataFrame) -> Markup:
    """Return a data frame as a table; shortened numbers sort by their full value."""
    columns = [str(name).replace("_", " ") for name in frame.columns]
    rows = [
        [_value(value) for value in row]
        for row in frame.itertuples(index=False, name=None)
    ]
    return table(caption, columns, rows, filtered=len(rows) > 8)


def records_table(caption: str, records: Sequence[Mapping[str, Any]]) -> Markup:
    """Return a list of mappings as a table, with nested values in one line."""
    lines = [{name: fact(value) for name, value in r.items()} for r in records]
    return frame_table(caption, pd.DataFrame(lines))


def _value(value: Any) -> Cell:
    if hasattr(value, "item"):
        value = value.item()
    if value is None or value is pd.NA:
        return Cell("–")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", "yes" if value else "no")
    if isinstance(value, int | float):
        sort = None if math.isnan(value) else float(value)
        return Cell(number(value), sort)
    return Cell(str(value), str(value))


def _cell(value: Cell | str) -> Cell:
    return value if isinstance(value, Cell) else Cell(value, value)


STYLES = {
    verdicts.REPRODUCED: "good",
    verdicts.PARTLY: "partly",
    verdicts.NOT_REPRODUCED: "bad",
    verdicts.NO_DIFFERENCE: "open",
    verdicts.UNDECIDED: "open",
}


@dataclass(frozen=True)
class Badge:
    """The text of a badge and its CSS class.

    Attributes:
        text: a verdict, or the reason why there is none.
    """

    text: str

    @property
    def style(self) -> str:
        """The CSS class of the verdict, or ``none`` if the text is no verdict."""
        return STYLES.get(self.text, "none")
