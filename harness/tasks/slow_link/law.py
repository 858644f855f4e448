"""The queueing model's prediction, from measurements of the link and of one worker."""

from __future__ import annotations

from harness.records.record import Record
from harness.simulator.planner import Setting
from harness.tasks.slow_link.settings import Settings
from harness.tasks.worker_team.tables import Law

__all__ = ["LAW", "setting"]


def setting(record: Record) -> Setting:
    """Return the setting of a run, with the numbers that it measured.

    A step is timed without an exchange, the link is measured by a program that sends
    zeros, and the center's time is the CPU time of its process.
    """
    numbers = record.summary
    return Setting(
        step_seconds=numbers["seconds/step"],
        model_bytes=Settings(**record.config).model_bytes,
        bytes_per_second=numbers["link/bandwidth"],
        latency_seconds=numbers["link/latency"],
        center_seconds=numbers["seconds/center"],
    )


def _expected(record: Record, period: int) -> float:
    return setting(record).steps(period, record.config["workers"])


def _most(record: Record, period: int) -> float:
    return setting(record).most_steps(period, record.config["workers"])


def _reduced(record: Record) -> float:
    return setting(record).synchronous_steps(record.config["workers"])


LAW = Law(_expected, _most, _reduced)
