"""A forest plot: an estimate with its interval, one under another on a common axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

WIDTH, HEIGHT, MARGIN = 180, 18, 5


class Result(NamedTuple):
    """One measured effect on the scale of its axis, a ratio as its logarithm.

    Attributes:
        kind: ratio, difference, share or slope.
        text: what was compared.
        shown: the effect with its interval, as text.
        outcome: what became of the prediction.
        low, estimate, high: the interval and the estimate.
        predicted: the predicted interval; an end may be infinite.
        neutral: the effect if there is no difference.
    """

    kind: str
    text: str
    shown: str
    outcome: str
    low: float
    estimate: float
    high: float
    predicted: tuple[float, float]
    neutral: float = 0.0


def forest(results: Sequence[Result]) -> list[Markup]:
    """Return a picture of each result; effects of one kind have the same axis."""
    return [
        _picture(r, [other for other in results if other.kind == r.kind])
        for r in results
    ]


def _picture(result: Result, alike: Sequence[Result]) -> Markup:
    values = [
        value
        for each in alike
        for value in (each.low, each.estimate, each.high, *each.predicted, each.neutral)
        if math.isfinite(value)
    ]
    start, end = min(values, default=0.0), max(values, default=0.0)
    scale = (WIDTH - 2 * MARGIN) / (end - start or 1.0)

    def place(value: float) -> float:
        if not math.isfinite(value):
            return float(WIDTH) if value > 0 else 0.0
        return round(MARGIN + (value - start) * scale, 1)

    low, high = map(place, result.predicted)
    left, dot, right = map(place, (result.low, result.estimate, result.high))
    middle, neutral = HEIGHT / 2, place(result.neutral)
    return Markup(
        f'<svg class="ls-forest" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<rect class="predicted" x="{low}" y="0" width="{max(high - low, 1):.1f}" '
        f'height="{HEIGHT}"/>'
        f'<path class="neutral" d="M{neutral} 0V{HEIGHT}"/>'
        f'<path class="interval" d="M{left} {middle}H{right}"/>'
        f'<circle cx="{dot}" cy="{middle}" r="3.5"/></svg>'
    )
