"""The loss scale of a run, the same on every backend."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from harness.tasks.deep_digits.settings import Settings

__all__ = ["make_scale"]


def make_scale(settings: Settings, host: ModuleType) -> Any:
    """Return the loss scale of a run, as the wrapper of ``host`` takes it.

    ``host`` is ``lockstep.pytorch`` or ``lockstep.tf``.
    """
    if settings.scale == "none":
        return None
    if settings.scale == "fixed":
        return settings.arguments["value"]
    if settings.scale == "dynamic":
        return host.DynamicLossScale(**settings.arguments)
    scaler = host.AutomaticLossScaler
    return scaler(settings.scale, settings.arguments, settings.strict)
