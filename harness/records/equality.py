"""Whether two outcomes of the same run are equal, and by which comparison.

Two processes of the same machine and versions must agree to the bit. Another processor,
or another version of a library, may add numbers in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.records.record import Outcome

__all__ = ["TOLERANCE", "Equality", "compare_outcomes", "difference_of_environments"]

TOLERANCE = 1e-4
"""Relative. Float32 has steps of 6e-8, and short runs lose about three digits of it."""

IGNORED = ("id", "processors")
"""What numbers do not depend on: every run has one thread."""


@dataclass(frozen=True)
class Equality:
    """What a comparison of two outcomes led to.

    Attributes:
        comparison: ``bits`` or ``1e-4``.
        because: why it was this one.
        change: what differs most; empty if the outcomes are equal.
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
        """How was compared and why so, as a clause."""
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
    """Compare two outcomes of a run: to the bit where the environments are the same.

    Args:
        environments: those of ``before`` and ``after``, as they stand in their files;
            an empty one is unknown.
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
    """Return why bits may differ; nothing if they must not."""
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
    """Return what differs most beyond the tolerance; nothing if nothing does."""
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
    """Return the gap between two numbers over the larger; two NaN are the same."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(abs(a), abs(b))
