"""Compare two outcomes of the same run: bit by bit or within a tolerance.

Two processes on the same machine with the same versions must agree to the bit. Another
processor or another version of a library may add numbers in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.records.record import Outcome

__all__ = ["TOLERANCE", "Equality", "compare_outcomes", "difference_of_environments"]

TOLERANCE = 1e-4
"""Relative. The precision of float32 is 6e-8; short runs lose about three digits."""

IGNORED = ("id", "processors")
"""Fields that do not affect the numbers: every run has one thread."""


@dataclass(frozen=True)
class Equality:
    """The result of comparing two outcomes.

    Attributes:
        comparison: ``bits`` or ``1e-4``.
        because: why this comparison was used.
        change: the largest difference; empty if the outcomes are equal.
    """

    comparison: str
    because: str
    change: str

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.change

    @property
    def method(self) -> str:
        """The comparison and its reason, as a clause."""
        how = {"bits": "to the bit", "1e-4": "within 1e-4"}[self.comparison]
        return f"{how} because {self.because}"

    def __str__(self) -> str:
        result = f"is not equal: {self.change}" if self.change else "is equal"
        return f"the outcome {result} (compared {self.method})"


def compare_outcomes(
    before: Outcome,
    after: Outcome,
    environments: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> Equality:
    """Compare two outcomes of a run, bit by bit if the environments are the same.

    Args:
        environments: of ``before`` and ``after``, as read from their files. An empty
            one is unknown.
    """
    different = difference_of_environments(*environments)
    if different:
        change = _change(before, after, TOLERANCE)
        return Equality("1e-4", different, change)
    because = "the processor and all versions match"
    return Equality("bits", because, _change(before, after, 0.0))


def difference_of_environments(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> str:
    """Return why the bits may differ, or an empty text if they must be equal."""
    if not (before and after):
        return "an environment is unknown"
    if not all((each.get("cpu") or {}).get("model") for each in (before, after)):
        return "the processor of a record is unknown"
    packages = [dict(each.get("packages") or {}) for each in (before, after)]
    flat = [
        {**each, **versions}
        for each, versions in zip((before, after), packages, strict=True)
    ]
    names = [
        name
        for name in dict.fromkeys([*flat[0], *flat[1]])
        if name not in (*IGNORED, "packages") and flat[0].get(name) != flat[1].get(name)
    ]
    return f"these differ: {', '.join(names)}" if names else ""


def _change(before: Outcome, after: Outcome, tolerance: float) -> str:
    """Return the largest difference beyond the tolerance, or an empty text."""
    if before.status != after.status:
        return f"the status was {before.status} and is {after.status}"
    if before.reason != after.reason:
        return f"the reason was {before.reason!r} and is {after.reason!r}"
    old, new = dict(_numbers(before)), dict(_numbers(after))
    if different := sorted(old.keys() ^ new.keys()):
        some = ", ".join(different[:3])
        return f"{len(different)} numbers stand on one side only, such as {some}"
    beyond = {
        name: gap
        for name in old
        if (gap := _relative(old[name], new[name])) > tolerance
    }
    if not beyond:
        return ""
    most = max(beyond, key=lambda name: beyond[name])
    changed = f"{len(beyond)} of {len(old)} numbers differ, most of all {most}"
    return f"{changed}, which was {old[most]:.9g} and is {new[most]:.9g}"


def _numbers(outcome: Outcome) -> Iterator[tuple[str, float]]:
    """Yield every number of an outcome with its name."""
    for name, value in outcome.summary.items():
        yield name, value
    for name, column in outcome.series.items():
        for place, value in enumerate(column, start=1):
            yield f"{name} at checkpoint {place}", value


def _relative(a: float, b: float) -> float:
    """Return the difference over the larger of two numbers. Two NaN are equal."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))
