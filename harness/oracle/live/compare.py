"""Compare computed with recorded values: the same bits, or where they differ.

FORMAT.md has the rule: NaN equals NaN, the sign of zero is ignored, and a distance is
in spacings of the largest recorded magnitude of a quantity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.oracle.live.golden import array

__all__ = ["Compared", "compare", "distance"]


class Compared:
    """One recorded value: its place, the computed value, and the distance."""

    def __init__(self, where: str, recorded: Any, live: Any, ulp: float) -> None:
        self.where = where
        self.recorded = recorded
        self.found = live
        self.ulp = ulp

    def as_json(self) -> dict[str, Any]:
        """Return the report's entry of a difference. Infinity is a string."""
        ulp = self.ulp if np.isfinite(self.ulp) else "inf"
        values = {"recorded": _text(self.recorded), "found": _text(self.found)}
        return {"where": self.where, "ulp": ulp, **values}


def compare(recorded: Any, live: Any, where: str = "") -> Iterator[Compared]:
    """Yield a comparison of every recorded value with the computed one.

    Computed values without a recording are ignored. A missing value, another structure
    or another type is infinitely different.
    """
    if isinstance(live, (np.ndarray, np.generic)):
        yield _of_arrays(recorded, np.asarray(live), where)
    elif isinstance(recorded, dict) and isinstance(live, dict):
        for key in recorded:
            place = f"{where}/{key}".lstrip("/")
            if key in live:
                yield from compare(recorded[key], live[key], place)
            else:
                yield Compared(place, recorded[key], "nothing", np.inf)
    elif isinstance(recorded, list) and isinstance(live, list):
        yield Compared(f"{where}: length", *_unlike(len(recorded), len(live)))
        for position, pair in enumerate(zip(recorded, live)):
            yield from compare(*pair, f"{where}/{position}".lstrip("/"))
    else:
        yield Compared(where, *_unlike(recorded, live))


def distance(recorded: Any, live: Any) -> float:
    """Return the distance of two arrays with the same dtype, in ULP."""
    if recorded.shape != live.shape:
        return float(np.inf)
    if recorded.dtype.kind != "f":
        return 0.0 if np.array_equal(recorded, live) else float(np.inf)
    wide, wide_live = recorded.astype(np.float64), live.astype(np.float64)
    same = (wide == wide_live) | (np.isnan(wide) & np.isnan(wide_live))
    if same.all():
        return 0.0
    if not (np.isfinite(wide) == np.isfinite(wide_live))[~same].all():
        return float(np.inf)
    if not np.isfinite(wide[~same]).all():
        return float(np.inf)
    finite = np.abs(recorded[np.isfinite(recorded)])
    return float(np.abs(wide_live - wide)[~same].max() / np.spacing(finite.max()))


def _of_arrays(recorded: Any, live: Any, where: str) -> Compared:
    """Decode the recorded value in the computed dtype. A double is always wrong."""
    if live.dtype == np.float64 or live.dtype.kind not in "fiub":
        return Compared(where, recorded, f"{live.dtype} {live}", np.inf)
    try:
        decoded = array(recorded, live.dtype)
    except (TypeError, ValueError):
        return Compared(where, recorded, live.tolist(), np.inf)
    if decoded.size == 0 and live.size == 0:
        # An empty array loses its trailing dimensions.
        decoded = decoded.reshape(live.shape)
    return Compared(where, recorded, live.tolist(), distance(decoded, live))


def _unlike(recorded: Any, live: Any) -> tuple[Any, Any, float]:
    same = type(recorded) is type(live) and recorded == live
    return recorded, live, 0.0 if same else float(np.inf)


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
