"""What the planner expects of workers, from what one worker was measured to take.

On one machine there is no link: the center is the only station. A worker that is alone
waits for nobody, so an exchange takes it its own part, in which it needs nobody, and
the center's part, which serves one worker after the other. The CPU time of the center's
process for an exchange is taken for the latter.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.records.record import Record
from harness.simulator.queueing import bound, mean_values
from harness.tasks.worker_team.tables import Law

__all__ = ["LAW", "expected_steps", "most_steps"]


def expected_steps(alone: Mapping[str, float], period: int, workers: int) -> float:
    """Return the steps a second of some workers by mean value analysis.

    Args:
        alone: ``seconds/step``, ``seconds/exchange`` and ``seconds/center`` of one.
        period: local steps between two exchanges.
        workers: how many there are.
    """
    think, service = _times(alone, period)
    return period * mean_values(think, (service,), workers)[-1].throughput


def most_steps(alone: Mapping[str, float], period: int, workers: int) -> float:
    """Return the asymptote of the same."""
    think, service = _times(alone, period)
    return period * bound(think, (service,), workers)


def _times(alone: Mapping[str, float], period: int) -> tuple[float, float]:
    """Return Z and S."""
    step, exchange, center = (
        alone[f"seconds/{name}"] for name in ("step", "exchange", "center")
    )
    own = max(0.0, exchange - center)
    return period * step + own, center


def _expected(record: Record, period: int) -> float:
    return expected_steps(record.summary, period, record.config["workers"])


def _most(record: Record, period: int) -> float:
    return most_steps(record.summary, period, record.config["workers"])


LAW = Law(_expected, _most)
