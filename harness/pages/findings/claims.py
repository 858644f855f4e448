"""The page of all claims: claim, source, verdict and results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.bench.compare import written
from harness.declarations.primaries import EVEN, LOG_RATIO, SHARE
from harness.judgement.claims import Claim, answer, read_claims
from harness.judgement.finding import Finding
from harness.judgement.norms import equal_without_zeros
from harness.pages.findings.forest import Result, forest
from harness.pages.findings.page import Answered
from harness.pages.findings.verdicts import effect
from harness.pages.markup.badges import Badge
from harness.pages.markup.templating import render

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
    has_picture = each is not None and claim.picture in [f.name for f in each.figures]
    measured = [_ratio(r, claim) if claim.benchmark else _result(r) for r in results]
    return {
        "claim": claim,
        "title": each.question.title if each else title,
        "badge": Badge(verdict),
        "page": page or f"{folder}/{claim.test}.html",
        "results": list(zip(measured, forest(measured), strict=True)),
        "note": _norms() if claim.cases else claim.missing,
        "picture": claim.picture if has_picture else "",
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
