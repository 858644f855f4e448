"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding
from harness.tasks.absent_heads.drawing import comparison, heads, sweep

__all__ = ["drawings"]


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    tables = finding.tables
    if "sweep" in tables:
        yield sweep(tables["sweep"], "error", "stars")
    if len(tables["comparison"]):
        yield comparison(tables["comparison"], "error")
    if tables["heads"]["ratio"].notna().any():
        yield heads(tables["heads"], "One point a genre.")
