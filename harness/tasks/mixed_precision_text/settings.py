"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.tasks.byte_transformer.data import Shape
from harness.tasks.loss_scales import ScaledSettings
from harness.tasks.settings import (
    require,
    require_counts,
    require_number,
    require_spread,
    spread,
)

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings(ScaledSettings):
    """The settings of one run.

    Attributes:
        method: as in ``ScaledSettings``; ``masters``, whether half-precision weights
            have float32 masters, true by default.
        rate: the learning rate of Adam.
        epsilon: Adam's epsilon, the same in every dtype; representable in float16.
        width: the width of the transformer, a multiple of its four heads.
        layers: the number of layers of the transformer.
        context: the number of bytes in its context.
        batch: windows of text per step.
        windows: the number of held-out windows.
        overflows: the number of steps with an infinite gradient, at equal distances.
        target: the bits per byte that a run should reach.
        steps: optimizer steps.
        checkpoints: the number of measurements, at equal distances.
    """

    DTYPES: ClassVar[tuple[str, ...]] = ("float32", "float16", "bfloat16")
    KEYS: ClassVar[tuple[str, ...]] = (*ScaledSettings.KEYS, "masters")

    rate: float
    epsilon: float
    width: int
    layers: int
    context: int
    batch: int
    windows: int
    overflows: int
    target: float
    steps: int
    checkpoints: int

    def __post_init__(self) -> None:
        counts = ("width", "layers", "context", "batch", "windows", "overflows")
        require_counts(self, *counts, "steps", "checkpoints")
        require_spread(self.checkpoints, self.steps)
        require_number(self, "rate", "epsilon", "target")
        whole = self.width % self.shape.heads == 0
        expected = f"a multiple of {self.shape.heads}, the number of heads"
        require(whole, "width", expected, self.width)
        fewer = self.overflows < self.steps
        require(fewer, "overflows", "fewer than steps", self.overflows)
        self.check_method()
        named = isinstance(self.method.get("masters", True), bool)
        require(named, "method.masters", "true or false", self.method.get("masters"))

    @property
    def masters(self) -> bool:
        """Whether half-precision weights have float32 masters."""
        return bool(self.method.get("masters", True))

    @property
    def is_plain(self) -> bool:
        """Whether this is plain float32 training."""
        return self.dtype == "float32" and self.scale == "none"

    @property
    def shape(self) -> Shape:
        """The sizes of the transformer."""
        return Shape(width=self.width, layers=self.layers, context=self.context)

    @property
    def overflow_steps(self) -> list[int]:
        """The steps with an infinite gradient, counted from 0."""
        parts = self.overflows + 1
        return [self.steps * k // parts for k in range(1, parts)]

    @property
    def measured_at(self) -> list[int]:
        """The steps after which the run is measured, including 0."""
        return spread(self.checkpoints, self.steps)
