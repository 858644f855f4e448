"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require_number
from harness.tasks.worker_team.settings import TeamSettings

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings(TeamSettings):
    """The settings of one run.

    Attributes:
        link_mbit: the bandwidth of each machine's link in each direction, in megabits
            per second.
    """

    link_mbit: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number(self, "link_mbit")
