"""Inserts of the home page: claims, parity and experiments in short."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.judgement.finding import Finding
from harness.pages.claims import OF_SOURCES, ledger
from harness.pages.findings import Answered, thumbnails
from harness.pages.parity import heat_map
from harness.pages.readme import DRAWN
from harness.pages.summaries import Summary
from harness.pages.templating import render
from harness.tasks import part

SHOWN = 6
"""The number of cards of experiments on the home page."""


def home_inserts(
    pages: Sequence[Summary],
    experiments: Sequence[Answered],
    benchmarks: Sequence[Answered],
    results: Path,
) -> dict[str, str]:
    """Return the inserts of the home page by name."""
    claims = ledger([*experiments, *benchmarks])[OF_SOURCES]
    tested = [row for row in claims if row["badge"].style != "none"]
    return {
        "home_claims": render("home_claims.html.jinja", rows=tested),
        "home_heads": _beside_figure(experiments),
        "home_experiments": thumbnails(pages[:SHOWN], "generated/experiments/"),
        "home_parity": heat_map(results),
    }


def _beside_figure(experiments: Sequence[Answered]) -> str:
    """Return the caption of the figure of the home page; empty without results."""
    drawn: list[Finding] = [
        answered.finding
        for answered in experiments
        if answered.question.name == DRAWN and answered.published and answered.finding
    ]
    return "".join(part(each.task, "report").brief(each).caption for each in drawn)
