"""The names of :mod:`lockstep.skeleton` bound to the originals' exact behaviour."""

from __future__ import annotations

from lockstep import skeleton
from lockstep.skeleton import Variable
from lockstep.strict import optimizers as original_rules
from lockstep.strict import originals

__all__ = ["GradientDescentOptimizer", "MultitaskOptimizerWrapper", "Variable"]


class GradientDescentOptimizer(
    original_rules.GradientDescentOptimizer, skeleton.GradientDescentOptimizer
):
    """The optimizer with ``strict=True``."""


class MultitaskOptimizerWrapper(
    originals.MultitaskOptimizerWrapper[skeleton.GradientDescentOptimizer],
    skeleton.MultitaskOptimizerWrapper,
):
    """The wrapper with ``strict=True``."""
