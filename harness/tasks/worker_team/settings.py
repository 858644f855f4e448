"""The settings of a team of workers, with their checks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt

from harness.tasks.schema import Positive, settings
from harness.tasks.settings import require

PERIODS = (1, 10, 40)
"""Local steps between two exchanges of a worker."""

MOST = 64
"""The most workers on one machine; each is a process with its framework."""

FLOAT = 4
"""The bytes of a weight."""


def weights_of(megabytes: float) -> int:
    """Return the number of weights of a model in float32."""
    return max(1, round(megabytes * 1e6 / FLOAT))


@settings
class TeamSettings:
    """The settings of the runs of every task with workers."""

    workers: Annotated[StrictInt, Field(gt=0, le=MOST)]  # that train at the same time
    step_ms: Positive  # milliseconds that a step waits
    model_mb: Positive  # megabytes of weights, in float32
    window: Positive  # seconds for which steps are counted

    def __post_init__(self) -> None:
        rounds = 1000 * self.window / (max(PERIODS) * self.step_ms)
        expected = f"time for a round of {max(PERIODS)} steps"
        require(rounds >= 1, "window", expected, f"{self.window} s")

    @property
    def weights(self) -> int:
        """The number of weights of the model."""
        return weights_of(self.model_mb)

    @property
    def model_bytes(self) -> int:
        """The bytes of the model."""
        return FLOAT * self.weights
