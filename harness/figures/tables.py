"""Group and select rows of tables."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd


def grouped(
    table: pd.DataFrame, *columns: str
) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Yield each combination of values of some columns, with its rows."""
    for values, rows in table.groupby(list(columns), sort=False):
        yield [str(value) for value in values], rows


def first_backend(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the backend in the first row; empty for an empty table."""
    rows: pd.DataFrame = table[table["backend"] == next(iter(table["backend"]), None)]
    return rows
