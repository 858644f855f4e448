"""Which gradients of a model are all zero."""

from __future__ import annotations

import numpy as np

from harness.tasks.overhead.shapes import MODELS
from lockstep.spec.errors import unknown_name

__all__ = ["zero_flags"]


def zero_flags(model: str, zeros: str) -> list[bool]:
    """Say which gradients are all zero: ``none`` of them, or the second ``half``.

    The model is halved by its elements, for every other tensor of a transformer would
    be nearly all of them or nearly none.
    """
    if zeros not in ("none", "half"):
        raise unknown_name("zeros", zeros, ["none", "half"])
    sizes = [int(np.prod(shape)) for shape in MODELS[model]]
    before = np.cumsum(sizes) - sizes
    return [zeros == "half" and bool(start >= sum(sizes) / 2) for start in before]
