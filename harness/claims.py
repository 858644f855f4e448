"""Claims that records support, refute or are silent about, and the verdict of them.

``None`` stands for a claim that no run is about: it is not judged, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "NO_ANSWER",
    "Claim",
    "Holds",
    "all_hold",
    "both",
    "joined",
    "listed",
    "verdict_of",
]

Holds: TypeAlias = bool | None
Claim: TypeAlias = tuple[str, Holds]

NO_ANSWER = "The runs of this experiment do not answer its task's question"
"""The answer where no part of the usual one can be computed."""


def all_hold(values: Any) -> Holds:
    """Whether every value holds; None if there is none."""
    array = np.asarray(values)
    return bool(np.all(array)) if array.size else None


def both(*parts: Holds) -> Holds:
    """Whether all parts hold: one that fails decides, then one that is not judged."""
    if any(part is False for part in parts):
        return False
    return None if any(part is None for part in parts) else True


def verdict_of(claims: Sequence[Claim]) -> str:
    """Return the verdict; the first claim is the main one."""
    main, every = claims[0][1], both(*(holds for _, holds in claims))
    if main is None:
        return "not judged"
    if not main:
        return "not supported"
    verdicts = {True: "reproduced", False: "partly", None: "reproduced where judged"}
    return verdicts[every]


def listed(claims: Iterable[Claim]) -> list[str]:
    """Return a sentence for each claim: whether it holds, or was not judged."""
    words = {
        True: "Holds",
        False: "Does not hold",
        None: "Not judged, for want of runs",
    }
    return [f"{words[holds]}: {claim}." for claim, holds in claims]


def joined(words: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
