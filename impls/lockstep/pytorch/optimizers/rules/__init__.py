"""The update rules as functions of tensors.

A rule receives its state, and changes it in place.
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

__all__ = ["Shared", "Slots"]

Slots: TypeAlias = dict[str, Tensor]
"""TF slot name -> tensor of the variable's shape and dtype."""

Shared: TypeAlias = dict[str, float]
"""Name -> float32 number that all variables share, such as ``beta1_power``."""
