"""Checks: what must hold in records, because arithmetic or a rule says so.

``None`` stands for a check that no run is about: it is not made, and that is written.
A check judges nothing that could have come out either way; see
``harness.judgement.verdicts``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Check", "Holds", "all_hold", "both", "listed"]

Holds: TypeAlias = bool | None
Check: TypeAlias = tuple[str, Holds]


def all_hold(values: Any) -> Holds:
    """Whether every value holds; None if there is none."""
    array = np.asarray(values)
    return bool(np.all(array)) if array.size else None


def both(*parts: Holds) -> Holds:
    """Whether all parts hold: one that fails decides, then one that was not checked."""
    if any(part is False for part in parts):
        return False
    return None if any(part is None for part in parts) else True


def listed(checks: Iterable[Check]) -> list[str]:
    """Return a sentence for each check: whether it holds, or was not made."""
    words = {
        True: "Holds",
        False: "Does not hold",
        None: "Not checked, because there are no runs for it",
    }
    return [f"{words[holds]}: {check}." for check, holds in checks]
