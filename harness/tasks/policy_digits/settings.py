"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.tasks.settings import (
    require,
    require_counts,
    require_label,
    require_spread,
    spread,
)
from lockstep.messages.errors import unknown_name
from lockstep.messages.schedules.lr_policies import find

__all__ = ["MODES", "Settings"]

MODES = ("default", "strict")

IN_STEPS = ("boundaries", "decay_steps", "begin_decay_at", "warmup_steps")
"""The arguments that an experiment declares as shares of a run's steps."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        schedule: ``label``, the ``policy`` and its arguments. Steps are shares of the
            run. A ``transformer_policy`` is scaled to a peak of ``rate``.
        mode: ``default`` or ``strict``.
        rate: the learning rate of every schedule.
        steps: optimizer steps.
        checkpoints: the number of measurements, at equal distances.
        batch: images per step.
    """

    schedule: Mapping[str, Any]
    mode: str
    rate: float
    steps: int
    checkpoints: int
    batch: int

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise unknown_name("mode", self.mode, MODES)
        require_counts(self, "steps", "checkpoints", "batch")
        require_spread(self.checkpoints, self.steps)
        table = isinstance(self.schedule, Mapping)
        require(table, "schedule", "a table with label and policy", self.schedule)
        require_label("schedule.label", self.schedule.get("label"))
        find(self.policy).check(self.arguments, strict=False)

    @property
    def label(self) -> str:
        """The name of the schedule."""
        return str(self.schedule["label"])

    @property
    def policy(self) -> str:
        """The name of the policy."""
        return str(self.schedule.get("policy"))

    @property
    def arguments(self) -> dict[str, Any]:
        """The policy's arguments, in steps."""
        values: dict[str, Any] = {"learning_rate": self.rate}
        for name, value in self.schedule.items():
            if name not in ("label", "policy"):
                values[name] = self._steps(value) if name in IN_STEPS else value
        named = {"d_model", "warmup_steps"} <= values.keys() - {"coefficient"}
        if self.policy == "transformer_policy" and named:
            own = (values["d_model"] * values["warmup_steps"]) ** 0.5
            values.setdefault("coefficient", own)
        return find(self.policy).bind(values)

    def _steps(self, shares: Any) -> Any:
        if isinstance(shares, list):
            return [self._steps(share) for share in shares]
        return round(shares * self.steps)

    @property
    def measured_at(self) -> list[int]:
        """The steps after which the loss is measured, including 0."""
        return spread(self.checkpoints, self.steps)
