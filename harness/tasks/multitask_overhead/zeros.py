"""The choice of the gradients of a model that are all zero."""

from __future__ import annotations

import numpy as np

from harness.tasks.overhead.shapes import shapes_of
from lockstep.errors import unknown_name

__all__ = ["SHARES", "zero_flags"]


SHARES = {"none": 0.0, "quarter": 0.25, "half": 0.5, "most": 0.75, "all": 1.0}
"""Name -> the share of a model's elements with zero gradients."""


def zero_flags(model: str, zeros: str) -> list[bool]:
    """Return whether each gradient is all zero: the last ones are, up to the share.

    The share is of the elements, because every other tensor of a transformer would have
    nearly all elements or nearly none.
    """
    if zeros not in SHARES:
        raise unknown_name("zeros", zeros, SHARES)
    sizes = [int(np.prod(shape)) for shape in shapes_of(model)]
    before = np.cumsum(sizes) - sizes
    nonzero = (1 - SHARES[zeros]) * sum(sizes)
    return [bool(start >= nonzero) for start in before]
