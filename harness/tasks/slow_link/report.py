"""Steps a second on slow links, and what the queueing model expects of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.tasks.worker_team.report import METRICS as METRICS
from harness.tasks.worker_team.report import draw_rates, modes


def judge(records: Sequence[Record]) -> Judgement:
    good = [record for record in records if record.status == "ok"]
    return Judgement({"steps": modes(good)} if good else {})


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the steps per second."""
    if finding.tables:
        lines = "Lines: what the queueing model expects on a link that was measured in "
        yield draw_rates(finding, f"{lines}the same run.")
