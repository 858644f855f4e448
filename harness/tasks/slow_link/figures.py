"""The figures of the experiment, drawn from a finding's tables."""

from __future__ import annotations

from collections.abc import Iterator

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding
from harness.tasks.worker_team.drawing import histograms, rates

__all__ = ["drawings"]

LINES = (
    "Lines: what the queueing model expects on a link that was measured in the same "
    "run."
)


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the figures in reading order."""
    if finding.tables:
        yield rates(finding, LINES)
        yield histograms(finding)
