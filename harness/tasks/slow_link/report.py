"""The queueing model's prediction, from measurements of the link and of one worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.figures.plot import Drawing
from harness.judgement.finding import Finding, Judgement
from harness.records.record import Record
from harness.tasks.slow_link.task import Settings
from harness.tasks.worker_team import report as team


def queue(record: Record, period: int) -> tuple[float, tuple[float, float, float]]:
    """Return Z = P t + 2 l and S = (B / W, a, B / W) of a worker's round.

    An exchange of B bytes passes three stations: the center's incoming link, the
    center, and its outgoing link. A step of t seconds is timed without an exchange. A
    program that sends zeros measures the bandwidth W of the link and its latency l one
    way. The center's a seconds are the CPU time of its process.
    """
    numbers = record.summary
    transfer = Settings(**record.config).model_bytes / numbers["link/bandwidth"]
    think = period * numbers["seconds/step"] + 2 * numbers["link/latency"]
    return think, (transfer, numbers["seconds/center"], transfer)


METRICS = team.metrics(queue)
"""The metrics of a run, which are all comparisons within it."""


def judge(records: Sequence[Record]) -> Judgement:
    good = [record for record in records if record.status == "ok"]
    if not good:
        return Judgement()
    return Judgement(tables={"steps": team.modes(good, queue)})


def drawings(finding: Finding) -> Iterator[Drawing]:
    """Yield the steps per second."""
    if finding.tables:
        lines = "Lines: what the queueing model expects on a link that was measured in "
        yield team.draw_rates(finding, f"{lines}the same run.")
