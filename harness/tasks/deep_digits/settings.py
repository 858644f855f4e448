"""The settings of one run, checked where they are declared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.tasks.digits import CLASSES, INPUTS
from harness.tasks.settings import (
    require,
    require_counts,
    require_label,
    require_number,
    require_spread,
    spread,
)
from lockstep import registry
from lockstep.messages.errors import unknown_name

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
        require_number(self, "rate")
        # The first weights are orthogonal: there must be a unit for each class, and
        # no more units than inputs.
        fits = CLASSES <= self.width <= INPUTS
        require(fits, "width", f"from {CLASSES} to {INPUTS} units", self.width)
        table = isinstance(self.method, Mapping)
        require(table, "method", "a table with label and dtype", self.method)
        require_label("method.label", self.method.get("label"))
        if self.dtype not in DTYPES:
            raise unknown_name("method.dtype", str(self.dtype), DTYPES)
        if self.scale not in SCALES:
            raise unknown_name("method.scale", str(self.scale), SCALES)
        known = ("label", "dtype", "scale", "arguments", "strict")
        for key in self.method:
            if key not in known:
                raise unknown_name("key of method", key, known)
        self._check_scale()

    def _check_scale(self) -> None:
        """Refuse arguments that the scale does not take, before anything is run."""
        if self.strict:
            scaler = self.scale in ("Backoff", "LogMax")
            expected = "Backoff or LogMax where strict is true"
            require(scaler, "method.scale", expected, self.scale)
        if self.scale == "fixed":
            value = self.arguments.get("value")
            number = isinstance(value, int | float) and 0 < value < math.inf
            expected = "a finite number > 0"
            require(number, "method.arguments.value", expected, value)
            unknown = [name for name in self.arguments if name != "value"]
            require(not unknown, "method.arguments", "value alone", unknown)
        reference = registry.load("reference", self.strict)
        if self.scale == "dynamic":
            reference.DynamicLossScale(**self.arguments)
        if self.scale in ("Backoff", "LogMax"):
            reference.AutomaticLossScaler(self.scale, self.arguments)

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
