"""Check and create the loss scales that several tasks use, by name."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, Literal, Required

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from harness.tasks.schema import Label, require
from lockstep import registry


@with_config(ConfigDict(extra="forbid", strict=True))
class Method(TypedDict, total=False):
    """The precision and the loss scale of a run.

    Attributes:
        dtype: of weights and activations.
        scale: none, a fixed number, or a loss scaler of Lockstep.
        arguments: of the scale, by name.
        strict: whether the scaler has the original's quirks.
    """

    label: Required[Label]
    dtype: Required[Literal["float32", "float16", "bfloat16"]]
    scale: Literal["none", "fixed", "dynamic", "Backoff", "LogMax"]
    arguments: dict[str, Any]
    strict: bool


class ScaledSettings:
    """The settings of a run with a loss scale."""

    method: Method

    def check_method(self) -> None:
        """Raise before any run if the scale does not accept its arguments."""
        if self.strict:
            scaler = self.scale in ("Backoff", "LogMax")
            expected = "Backoff or LogMax where strict is true"
            require(scaler, "method.scale", expected, self.scale)
        if self.scale == "fixed":
            value = self.arguments.get("value")
            number = isinstance(value, int | float) and 0 < value < math.inf
            alone = number and len(self.arguments) == 1
            expected = "a value alone, a finite number > 0"
            require(alone, "method.arguments", expected, self.arguments)
        make_scale(self, registry.load("reference"))

    @property
    def label(self) -> str:
        return self.method["label"]

    @property
    def dtype(self) -> str:
        return self.method["dtype"]

    @property
    def scale(self) -> str:
        """The name of the loss scale."""
        return self.method.get("scale", "none")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the scale, by name."""
        return self.method.get("arguments", {})

    @property
    def strict(self) -> bool:
        """Whether the scaler has the original's quirks."""
        return self.method.get("strict", False)

    @property
    def is_plain(self) -> bool:
        """Whether this is plain float32 training."""
        return self.dtype == "float32" and self.scale == "none"


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
