"""The reference's update rules, on tensors that are changed in place.

Formulas are in :mod:`lockstep.reference.optimizers.rules`, with the same names. An
``update_dense`` takes many tensors of one device and dtype, so that few calls do it.
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

__all__ = ["Shared", "Slots"]

Slots: TypeAlias = dict[str, Tensor]
"""TF slot name -> tensor of the variable's shape and dtype."""

Shared: TypeAlias = dict[str, float]
"""Name -> float32 number that all variables share, such as ``beta1_power``."""
