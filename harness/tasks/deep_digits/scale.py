"""The loss scale of a run, the same on every backend."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from harness.tasks.deep_digits.settings import Settings

__all__ = ["make_scale"]


def make_scale(settings: Settings, names: ModuleType) -> Any:
    """Return the loss scale of a run, as the wrapper of ``names`` takes it.

    ``names`` is ``lockstep.pytorch`` or ``lockstep.tf``.
    """
    if settings.scale == "none":
        return None
    if settings.scale == "fixed":
        return settings.arguments["value"]
    if settings.scale == "dynamic":
        return names.DynamicLossScale(**settings.arguments)
    scaler = names.AutomaticLossScaler
    return scaler(settings.scale, settings.arguments, settings.strict)
