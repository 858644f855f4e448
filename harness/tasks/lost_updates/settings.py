"""The settings of one run, checked where they are declared."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.spec.errors import OutOfRangeError, sentence, unknown_name

__all__ = ["METHODS", "Settings"]

METHODS = ("fp16", "masters")


@dataclass(frozen=True)
class Settings:
    """What one run does.

    Attributes:
        method: ``fp16``, SGD on the float16 weights themselves, or ``masters``.
        ratio: weight / update, before both are rounded to float16.
        weights: how many there are.
        steps: how often the update is asked for.
        checkpoints: measurements, at equal distances.
    """

    method: str
    ratio: float
    weights: int
    steps: int
    checkpoints: int

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise unknown_name("method", self.method, METHODS)
        for name in ("weights", "steps", "checkpoints"):
            value = getattr(self, name)
            counted = isinstance(value, int) and value > 0
            _require(counted, name, "a whole number > 0", value)
        got = f"{self.checkpoints} for {self.steps} steps"
        even = self.steps % self.checkpoints == 0
        _require(even, "checkpoints", "a number that divides steps", got)
        # The smallest weight is 16: its update must be a normal float16 number.
        fine = 1 < self.ratio <= 2.0**18
        _require(fine, "ratio", "above 1 and at most 2^18", self.ratio)

    @property
    def measured_at(self) -> list[int]:
        """The steps after which is measured; the first one, and at equal distances."""
        interval = self.steps // self.checkpoints
        later = [interval * k for k in range(1, self.checkpoints + 1)]
        return sorted({1, *later})


def _require(claim: bool, subject: str, expected: str, got: object) -> None:
    if not claim:
        remedy = "change it in the experiment's file"
        raise OutOfRangeError(sentence(subject, expected, str(got), remedy))
