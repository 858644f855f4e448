"""The queueing model's prediction for workers, from the measured times of one worker.

On one machine there is no link, so the center is the only station. A single worker
never waits. So the time of an exchange has two parts: the worker's own part, and the
center's part, in which it serves one worker after the other. The latter is the CPU time
of the center's process per exchange.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.records.record import Record
from harness.simulator.queueing import bound, mean_values
from harness.tasks.worker_team.tables import Law

__all__ = ["LAW", "expected_steps", "most_steps"]


def expected_steps(alone: Mapping[str, float], period: int, workers: int) -> float:
    """Return the steps per second of all workers by mean value analysis.

    Args:
        alone: ``seconds/step``, ``seconds/exchange`` and ``seconds/center`` of one
            worker.
        period: local steps between two exchanges.
        workers: the number of workers.
    """
    think, service = _times(alone, period)
    return period * mean_values(think, (service,), workers)[-1].throughput


def most_steps(alone: Mapping[str, float], period: int, workers: int) -> float:
    """Return the asymptote of :func:`expected_steps`."""
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
