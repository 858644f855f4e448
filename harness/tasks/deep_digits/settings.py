"""The settings of one run, checked where they are declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.tasks.settings import require, require_counts, require_spread, spread
from lockstep.spec.errors import unknown_name

__all__ = ["DTYPES", "SCALES", "Settings"]

DTYPES = ("float32", "float16")

SCALES = ("none", "fixed", "dynamic", "Backoff", "LogMax")
"""What multiplies the loss: nothing, a number, or an object of Lockstep."""


@dataclass(frozen=True)
class Settings:
    """What one run does.

    Attributes:
        method: ``label``, the ``dtype`` of the weights, the ``scale`` and its
            ``arguments``; ``strict`` for a scaler with the original's quirks.
        loss_log2: the loss is multiplied by 2**loss_log2, and the rate divided by it.
        rate: the learning rate of SGD with momentum 0.9, before that.
        depth: hidden layers.
        width: units of each.
        batch: images a step.
        steps: optimizer steps; that in the middle has an infinite loss.
        checkpoints: measurements, at equal distances.
    """

    method: Mapping[str, Any]
    loss_log2: int
    rate: float
    depth: int
    width: int
    batch: int
    steps: int
    checkpoints: int

    def __post_init__(self) -> None:
        require_counts(self, "depth", "width", "batch", "steps", "checkpoints")
        require_spread(self.checkpoints, self.steps)
        whole = isinstance(self.loss_log2, int)
        require(whole, "loss_log2", "a whole number", self.loss_log2)
        require(self.rate > 0, "rate", "> 0", self.rate)
        label = self.method.get("label")
        require(isinstance(label, str), "method.label", "a text", label)
        if self.dtype not in DTYPES:
            raise unknown_name("method.dtype", str(self.dtype), DTYPES)
        if self.scale not in SCALES:
            raise unknown_name("method.scale", str(self.scale), SCALES)
        known = ("label", "dtype", "scale", "arguments", "strict")
        for key in self.method:
            if key not in known:
                raise unknown_name("key of method", key, known)

    @property
    def label(self) -> str:
        """What the method is called."""
        return str(self.method["label"])

    @property
    def dtype(self) -> str:
        """The dtype of weights and activations."""
        return str(self.method.get("dtype"))

    @property
    def scale(self) -> str:
        """What multiplies the loss."""
        return str(self.method.get("scale", "none"))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the scale, by name."""
        return dict(self.method.get("arguments", {}))

    @property
    def strict(self) -> bool:
        """Whether the scaler has the original's quirks."""
        return bool(self.method.get("strict", False))

    @property
    def overflow(self) -> int:
        """The step whose loss is infinite, from 0."""
        return self.steps // 2

    @property
    def measured_at(self) -> list[int]:
        """The steps after which is measured, 0 among them."""
        return spread(self.checkpoints, self.steps)
