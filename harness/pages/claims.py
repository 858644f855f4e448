"""The page of all claims: claim, source, verdict and results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from harness.bench.compare import written
from harness.declarations.primaries import EVEN, LOG_RATIO, SHARE
from harness.judgement.claims import Claim, answer, equal_without_zeros, read_claims
from harness.judgement.finding import Finding
from harness.pages.findings import Answered, effect
from harness.pages.tables import Badge
from harness.pages.templating import render

OF_SOURCES = "Claims of sources"
PARTS = {"source": OF_SOURCES, "ours": "Our own claims"}


def claims_page(answers: Sequence[Answered]) -> str:
    """Return the page of all claims.

    Args:
        answers: the experiments and benchmarks with their findings.
    """
    return render("claims.md.jinja", parts=ledger(answers))


def ledger(answers: Sequence[Answered]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each part of the table of claims, for its template."""
    answered = {each.question.name: each for each in answers}
    claims = read_claims()
    return {
        title: [_row(claim, answered) for claim in claims if claim.of == kind]
        for kind, title in PARTS.items()
    }


def _row(claim: Claim, answered: Mapping[str, Answered]) -> dict[str, Any]:
    each = answered.get(claim.test)
    finding = _published(each)
    verdict, results = answer(claim, finding)
    folder = "benchmarks" if claim.benchmark else "experiments"
    page = f"../{claim.page.replace('.md', '.html')}" if claim.page else ""
    title = "On the tool's page" if claim.page else ""
    measured = [_ratio(r, claim) if claim.benchmark else _result(r) for r in results]
    return {
        "claim": claim,
        "title": each.question.title if each else title,
        "badge": Badge(verdict),
        "page": page or f"{folder}/{claim.test}.html",
        "results": list(zip(measured, forest(measured), strict=True)),
        "note": _norms() if claim.cases else claim.missing,
    }


def _published(each: Answered | None) -> Finding | None:
    """Return the finding if it is from published records, which alone answer claims."""
    return each.finding if each is not None and each.published else None


def _ratio(row: Mapping[Any, Any], claim: Claim) -> Result:
    return Result(
        kind=LOG_RATIO,
        text=f"{row['backend']}, {row['what']}",
        shown=f"ratio {written(row)}",
        outcome=row["outcome"],
        low=math.log(row["low"]),
        estimate=math.log(row["value"]),
        high=math.log(row["high"]),
        predicted=(math.log(claim.low), math.inf),
    )


def _result(row: Mapping[Any, Any]) -> Result:
    return Result(
        kind=row["effect"],
        text=row["claim"],
        shown=effect(row),
        outcome=f"control {row['outcome']}" if row["control"] else row["outcome"],
        low=row["low"],
        estimate=row["estimate"],
        high=row["high"],
        predicted=(row["predicted_low"], row["predicted_high"]),
        neutral=EVEN if row["effect"] == SHARE else 0.0,
    )


def _norms() -> str:
    equal, count = equal_without_zeros()
    return (
        f"For {equal} of {count} recorded lists of gradients with tensors of zeros, "
        "the original's norm has the bits of the norm without these tensors."
    )


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
