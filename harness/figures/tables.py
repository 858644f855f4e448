"""Tables: their rows by what they hold."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

__all__ = ["first_backend", "grouped"]


def grouped(
    table: pd.DataFrame, *columns: str
) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Yield the values of some columns with the rows that have them."""
    for values, rows in table.groupby(list(columns), sort=False):
        yield [str(value) for value in values], rows


def first_backend(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the backend that is named first; none of an empty table."""
    rows: pd.DataFrame = table[table["backend"] == next(iter(table["backend"]), None)]
    return rows
