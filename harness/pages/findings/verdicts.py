"""Predictions with their results, as a section of a page and as cells of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from harness.declarations.primaries import DIFFERENCE, LOG_RATIO, SHARE, SLOPE
from harness.judgement.finding import PREDICTIONS, Finding
from harness.pages.markup.tables import PAIRS, Cell, table
from harness.pages.markup.templating import number

Row = Mapping[Any, Any]

SETTINGS = ", "
"""What separates the settings of an arm in the table."""

KINDS = {
    LOG_RATIO: "ratio",
    DIFFERENCE: "difference",
    SHARE: "share",
    SLOPE: "slope per doubling",
}
"""Effect -> what a page calls its number."""

COLUMNS = ("Claim", "Outcome", "Measured", "Predicted", "Backend")


def results_html(finding: Finding) -> str:
    """Return the table of predictions and results; empty if nothing is judged."""
    rows = [
        [
            Cell(row["claim"], row["comparison"], "claim", _arms(row)),
            Cell(row["outcome"], row["outcome"], notes=(*_control(row), _p(row["p"]))),
            Cell(effect(row), float(row["estimate"]), notes=(_pairs(row),)),
            prediction(row),
            row["backend"] + (" (judged)" if row["judged"] else ""),
        ]
        for row in _rows(finding)
    ]
    caption = "Predictions and results"
    return table(caption, COLUMNS, rows, style=PAIRS) if rows else ""


def prediction(row: Row) -> str:
    """Return the prediction, such as ``ratio above 1`` or ``ratio 0.95 to 1.05``."""
    kind = KINDS[row["effect"]]
    low, high = (_number(row, row[f"predicted_{end}"]) for end in ("low", "high"))
    if math.isinf(row["predicted_high"]):
        return f"{kind} above {low}"
    if math.isinf(row["predicted_low"]):
        return f"{kind} below {high}"
    return f"{kind} {low} to {high}"


def effect(row: Row) -> str:
    """Return the median effect with its interval; log ratios are shown as ratios."""
    estimate, low, high = (
        _number(row, row[name]) for name in ("estimate", "low", "high")
    )
    return f"{KINDS[row['effect']]} {estimate} [{low}, {high}]"


def _rows(finding: Finding) -> list[dict[Any, Any]]:
    frame = finding.tables.get(PREDICTIONS)
    return [] if frame is None else frame.to_dict("records")


def _number(row: Row, value: float) -> str:
    """Return a number as text; logarithms of ratios are shown as ratios."""
    shown = float(np.exp(value) if row["effect"] == LOG_RATIO else value)
    if math.isinf(shown) or shown == 0 or not 1e-4 <= abs(shown) < 1e4:
        return number(shown, 3)
    return f"{shown:#.3g}".removesuffix(".").replace("-", "−")


def _arms(row: Row) -> tuple[str, ...]:
    """Return the name, the compared arms and the reason, only on the judged backend."""
    if not row["judged"]:
        return ()
    unit = f" ({row['unit']})" if row["unit"] != row["metric"] else ""
    compared = f"{row['comparison']}: {row['metric']}{unit}, {_against(row)}"
    return compared, f"Reason: {row['because']}"


def _control(row: Row) -> tuple[str, ...]:
    return ("control",) if row["control"] else ()


def _against(row: Row) -> str:
    """Return the settings of both arms; those that they share are named once."""
    if not row["against"]:
        return str(row["arm"])
    arm, other = (row[name].split(SETTINGS) for name in ("arm", "against"))
    first, second = (
        SETTINGS.join(each for each in own if each not in others)
        for own, others in ((arm, other), (other, arm))
    )
    shared = SETTINGS.join(each for each in arm if each in other)
    return f"{first} against {second}" + (f"; both with {shared}" if shared else "")


def _pairs(row: Row) -> str:
    return f"{row['pairs']} seeds"


def _p(value: float) -> str:
    return f"p-value {number(value, 2)}" if value >= 1e-3 else "p-value < 0.001"
