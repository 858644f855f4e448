"""The page of all claims: claim, source, verdict and results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from harness.bench.compare import written
from harness.declarations.primaries import EVEN, LOG_RATIO, SHARE
from harness.judgement.claims import Claim, answer, read_claims
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
        title: [
            _row(claim, answered.get(claim.test)) for claim in claims if claim.of == of
        ]
        for of, title in PARTS.items()
    }


def _row(claim: Claim, each: Answered | None) -> dict[str, Any]:
    # Published records alone answer claims.
    finding = each.finding if each is not None and each.published else None
    verdict, rows = answer(claim, finding)
    results = [_ratio(row) if claim.benchmark else _result(row) for row in rows]
    folder = "benchmarks" if claim.benchmark else "experiments"
    title, page = "", f"{folder}/{claim.test}.html"
    if claim.page:
        title, page = "On the tool's page", f"../{claim.page.replace('.md', '.html')}"
    return {
        "claim": claim,
        "title": each.question.title if each else title,
        "badge": Badge(verdict),
        "page": page,
        "results": [(result, picture(result, results)) for result in results],
    }


class Result(NamedTuple):
    """One measured effect on the scale of its axis, a ratio as its logarithm.

    Attributes:
        kind: ratio, difference, share or slope; effects of one kind have one axis.
        text: what was compared.
        shown: the effect with its interval, as text.
        outcome: what became of the prediction.
        interval: its low end, the estimate and its high end.
        predicted: the predicted interval; an end may be infinite.
        neutral: the effect if there is no difference.
    """

    kind: str
    text: str
    shown: str
    outcome: str
    interval: tuple[float, float, float]
    predicted: tuple[float, float]
    neutral: float = 0.0


def _ratio(row: Mapping[Any, Any]) -> Result:
    """Return the ratio of a benchmark, which is predicted to be above 1."""
    return Result(
        kind=LOG_RATIO,
        text=f"{row['backend']}, {row['what']}",
        shown=f"ratio {written(row)}",
        outcome=row["outcome"],
        interval=(math.log(row["low"]), math.log(row["value"]), math.log(row["high"])),
        predicted=(0.0, math.inf),
    )


def _result(row: Mapping[Any, Any]) -> Result:
    """Return the comparison of an experiment."""
    return Result(
        kind=row["effect"],
        text=row["claim"],
        shown=effect(row),
        outcome=f"control {row['outcome']}" if row["control"] else row["outcome"],
        interval=(row["low"], row["estimate"], row["high"]),
        predicted=(row["predicted_low"], row["predicted_high"]),
        neutral=EVEN if row["effect"] == SHARE else 0.0,
    )


WIDTH, HEIGHT, MARGIN = 180, 18, 5


def picture(result: Result, results: Sequence[Result]) -> Markup:
    """Return a result of a claim as a forest plot; all of its kind share the axis."""
    ends = [
        end
        for each in results
        if each.kind == result.kind
        for end in (*each.interval, *each.predicted, each.neutral)
        if math.isfinite(end)
    ]
    start = min(ends)
    scale = (WIDTH - 2 * MARGIN) / (max(ends) - start or 1.0)

    def place(value: float) -> float:
        if not math.isfinite(value):
            return float(WIDTH) if value > 0 else 0.0
        return round(MARGIN + (value - start) * scale, 1)

    low, high = map(place, result.predicted)
    left, dot, right = map(place, result.interval)
    middle, neutral = HEIGHT / 2, place(result.neutral)
    return Markup(
        f'<svg class="ls-forest" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f'<rect class="predicted" x="{low}" y="0" width="{max(high - low, 1):.1f}" '
        f'height="{HEIGHT}"/>'
        f'<path class="neutral" d="M{neutral} 0V{HEIGHT}"/>'
        f'<path class="interval" d="M{left} {middle}H{right}"/>'
        f'<circle cx="{dot}" cy="{middle}" r="3.5"/></svg>'
    )
