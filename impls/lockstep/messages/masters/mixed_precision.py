"""Names, checks and messages of float32 masters on all backends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lockstep.messages.masters import refusals
from lockstep.messages.scaling import loss_scaling
from lockstep.messages.scaling.loss_scale import scale_argument

__all__ = [
    "LARGEST",
    "MASTERS",
    "REGULARIZERS",
    "SCOPE",
    "SUFFIX",
    "WRAPPER",
    "check_at_floor",
    "check_clip_norm",
    "check_regularizer",
    "has_master",
    "master_name",
    "scale_number",
    "stalled",
]

WRAPPER = "MixedPrecisionOptimizerWrapper"
SCOPE = "FP32-master-copy"
"""A master's name is SCOPE/NAME."""
AT_MOST = 4
"""The largest number of names in a message."""
SUFFIX = "-MP"
"""The suffix that the wrapper adds to its optimizer's name."""
MASTERS = "FP32_MASTER_COPIES"
REGULARIZERS = "REGULARIZATION_FUNCTIONS"
"""The names of the two collections of a graph."""
LARGEST: Mapping[str, float] = {
    "float16": 65504.0,
    "bfloat16": (2 - 2**-7) * 2.0**127,
}
"""Dtype with a master -> the magnitude to which its weights are clamped."""


check_at_floor = partial(loss_scaling.check_at_floor, owner=WRAPPER)
check_clip_norm = partial(
    loss_scaling.check_clip_norm, arguments_unchecked=False, owner=WRAPPER
)
stalled = partial(loss_scaling.stalled, owner=WRAPPER)
"""The loss-scaling wrapper's message, with this wrapper's name."""


def has_master(dtype: str, half_precision_scalars: bool = False) -> bool:
    """Return whether a variable of this dtype is trained through a float32 master.

    Strict: float16 only, because the original does not support bfloat16.
    """
    return dtype == "float16" if half_precision_scalars else dtype in LARGEST


def master_name(name: str) -> str:
    """Return the name of the master of the variable ``name``."""
    return f"{SCOPE}/{name}"


def scale_number(loss_scale: Any, masters_scale_type: bool = False) -> float | None:
    """Return the static scale for ``loss_scale``, or None if it is no number.

    An argument of None means 1. Strict: only floats are numbers, and their range is not
    checked.

    Raises:
        OutOfRangeError: not positive, or not finite.
    """
    if loss_scale is None:
        return 1.0
    if masters_scale_type:
        return float(loss_scale) if isinstance(loss_scale, float) else None
    return scale_argument(loss_scale, f"{WRAPPER}: loss_scale")


def check_regularizer(regularizer: object) -> None:
    """Raise unless ``regularizer`` can be called."""
    if not callable(regularizer):
        got = type(regularizer).__name__
        raise refusals.REGULARIZER_NOT_CALLABLE.error(got=got)
