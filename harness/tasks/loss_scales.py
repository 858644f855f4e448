"""Check and create the precisions and loss scales that several tasks use, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

from harness.tasks.settings import require, require_label
from lockstep import registry
from lockstep.errors import unknown_name

__all__ = ["SCALES", "ScaledSettings", "make_scale"]

SCALES = ("none", "fixed", "dynamic", "Backoff", "LogMax")
"""The loss scales: none, a fixed number, or a loss scaler of Lockstep."""


@dataclass(frozen=True)
class ScaledSettings:
    """The precision and the loss scale of a run.

    Attributes:
        method: ``label``, the ``dtype`` of the weights, the ``scale`` and its
            ``arguments``; ``strict`` for a scaler with the original's quirks.
    """

    DTYPES: ClassVar[tuple[str, ...]] = ("float32", "float16")
    KEYS: ClassVar[tuple[str, ...]] = ("label", "dtype", "scale", "arguments", "strict")

    method: Mapping[str, Any]

    def check_method(self) -> None:
        """Raise an error of one sentence unless the method is valid."""
        table = isinstance(self.method, Mapping)
        require(table, "method", "a table with label and dtype", self.method)
        require_label("method.label", self.method.get("label"))
        if self.dtype not in self.DTYPES:
            raise unknown_name("method.dtype", str(self.dtype), self.DTYPES)
        if self.scale not in SCALES:
            raise unknown_name("method.scale", str(self.scale), SCALES)
        for key in self.method:
            if key not in self.KEYS:
                raise unknown_name("key of method", key, self.KEYS)
        self._check_scale()

    def _check_scale(self) -> None:
        """Raise before any run if the scale does not accept its arguments."""
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
        """The name of the method."""
        return str(self.method["label"])

    @property
    def dtype(self) -> str:
        """The dtype of weights and activations."""
        return str(self.method.get("dtype"))

    @property
    def scale(self) -> str:
        """The name of the loss scale, one of ``SCALES``."""
        return str(self.method.get("scale", "none"))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the scale, by name."""
        return dict(self.method.get("arguments", {}))

    @property
    def strict(self) -> bool:
        """Whether the scaler has the original's quirks."""
        return bool(self.method.get("strict", False))


def make_scale(settings: ScaledSettings, names: ModuleType) -> Any:
    """Return the loss scale of a run as an argument of the wrapper in ``names``.

    ``names`` is a backend, such as ``lockstep.pytorch``.
    """
    if settings.scale == "none":
        return None
    if settings.scale == "fixed":
        return settings.arguments["value"]
    if settings.scale == "dynamic":
        return names.DynamicLossScale(**settings.arguments)
    scaler = names.AutomaticLossScaler
    return scaler(settings.scale, settings.arguments, settings.strict)
