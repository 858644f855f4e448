"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass

from harness.tasks.settings import require_counts, require_number
from lockstep.messages.errors import unknown_name

__all__ = ["ON_DEVICE", "PEER", "RAISES", "SITUATIONS", "SUBJECTS", "WARNS", "Settings"]

SITUATIONS = ("overflow", "zeros", "clipping")

WARNS, RAISES, ON_DEVICE, PEER = SUBJECTS = (
    "lockstep",
    "lockstep, at_floor='raise'",
    "lockstep, on the device",
    "peer",
)
"""Our wrapper in three variants, and the framework's own scaler."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        situation: ``overflow``: finite steps, ``overflows`` steps with an inf in one
            gradient, finite steps. ``zeros``: the same with ``zeros`` steps without any
            gradient, and growth at every step. ``clipping``: ``after`` clipped steps,
            once with the scale 1 and once with ``large``.
        subject: the scaler.
        initial: the initial loss scale.
        before, after: the number of finite steps before and after the situation.
        rate, momentum: the arguments of SGD.
        clip_norm: the largest global norm of both weights' gradients.
        asked_every: the steps between two reads of the report of the scaler on the
            device.
    """

    situation: str
    subject: str
    initial: float
    before: int
    overflows: int
    zeros: int
    after: int
    rate: float
    momentum: float
    clip_norm: float
    large: float
    asked_every: int

    def __post_init__(self) -> None:
        if self.situation not in SITUATIONS:
            raise unknown_name("situation", self.situation, SITUATIONS)
        if self.subject not in SUBJECTS:
            raise unknown_name("subject", self.subject, SUBJECTS)
        require_counts(self, "before", "overflows", "zeros", "after", "asked_every")
        require_number(self, "initial", "rate", "momentum", "clip_norm", "large")

    @property
    def limit(self) -> int:
        """The number of steps of the situation itself."""
        return self.zeros if self.situation == "zeros" else self.overflows
