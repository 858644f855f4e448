"""Tables: their rows by what they hold."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

__all__ = ["first_host", "grouped"]


def grouped(
    table: pd.DataFrame, *columns: str
) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Yield the values of some columns with the rows that have them."""
    for values, rows in table.groupby(list(columns), sort=False):
        yield [str(value) for value in values], rows


def first_host(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the host that is named first; none of an empty table."""
    rows: pd.DataFrame = table[table["host"] == next(iter(table["host"]), None)]
    return rows
