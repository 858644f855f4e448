"""Checks of records that must hold by arithmetic or by the rule.

``None`` means that no run applies to a check; the page says that it was not made.
Questions with an open outcome are not checks; see ``harness.judgement.verdicts``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

Holds: TypeAlias = bool | None
Check: TypeAlias = tuple[str, Holds]


def all_hold(values: Any) -> Holds:
    """Whether all values are true; None without a value."""
    array = np.asarray(values)
    return bool(np.all(array)) if array.size else None


def listed(checks: Iterable[Check]) -> list[str]:
    """Return a sentence for each check: it holds, fails, or was not made."""
    words = {
        True: "Holds",
        False: "Does not hold",
        None: "Not checked, because there are no runs for it",
    }
    return [f"{words[holds]}: {check}." for check, holds in checks]
