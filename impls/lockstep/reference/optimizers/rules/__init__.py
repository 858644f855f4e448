"""The update rules as functions of arrays.

A rule receives the state and returns the new state.
"""

from __future__ import annotations

from typing import TypeAlias

from lockstep.interface import Array

__all__ = ["Shared", "Slots"]

Slots: TypeAlias = dict[str, Array]
"""TF slot name -> array of the variable's shape and dtype."""

Shared: TypeAlias = dict[str, Array]
"""Name -> float32 scalar that all variables share, such as ``beta1_power``."""
