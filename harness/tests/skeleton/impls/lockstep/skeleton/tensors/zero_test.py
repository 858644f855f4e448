"""The zero test of the multitask wrapper: has a gradient a nonzero element?"""

from __future__ import annotations

import numpy as np

from lockstep.interface import Array

__all__ = ["is_all_zero"]


def is_all_zero(gradient: Array, flush: bool = False) -> bool:
    """Whether ``gradient`` has no nonzero element; NaN is not zero.

    With ``flush`` float32 subnormals count as zero.
    """
    if flush and gradient.dtype != np.float16:
        smallest = np.finfo(gradient.dtype).smallest_normal
        gradient = np.where(np.abs(gradient) < smallest, 0, gradient)
    return not gradient.any()
