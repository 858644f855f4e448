"""Tables: their rows by what they hold, and claims about all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["all_hold", "first_host", "grouped"]


def grouped(
    table: pd.DataFrame, *columns: str
) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Yield the values of some columns with the rows that have them."""
    for values, rows in table.groupby(list(columns), sort=False):
        yield [str(value) for value in values], rows


def first_host(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the host that is named first."""
    rows: pd.DataFrame = table[table["host"] == table["host"].iloc[0]]
    return rows


def all_hold(claims: Any) -> bool:
    """Say whether something was looked at and holds throughout."""
    values = np.asarray(claims)
    return values.size > 0 and bool(np.all(values))
