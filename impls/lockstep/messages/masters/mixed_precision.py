"""The words of float32 masters: names, checks, and what every host says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lockstep.messages.errors import (
    DtypeError,
    sentence,
)
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
    "halved_since",
    "has_master",
    "master_name",
    "scale_number",
    "stalled",
    "written_through_data",
]

WRAPPER = "MixedPrecisionOptimizerWrapper"
SCOPE = "FP32-master-copy"
"""Masters are called SCOPE/NAME."""
AT_MOST = 4
"""How many names a sentence lists."""
SUFFIX = "-MP"
"""The wrapper is called as its optimizer, and this."""
MASTERS = "FP32_MASTER_COPIES"
REGULARIZERS = "REGULARIZATION_FUNCTIONS"
"""The two collections of a graph."""
LARGEST: Mapping[str, float] = {
    "float16": 65504.0,
    "bfloat16": (2 - 2**-7) * 2.0**127,
}
"""Dtypes with a master, and the magnitude to which their weights are clamped."""


check_at_floor = partial(loss_scaling.check_at_floor, owner=WRAPPER)
check_clip_norm = partial(
    loss_scaling.check_clip_norm, arguments_unchecked=False, owner=WRAPPER
)
stalled = partial(loss_scaling.stalled, owner=WRAPPER)
"""What the loss-scaling wrapper says too, in the name of this one."""


def has_master(dtype: str, half_precision_scalars: bool = False) -> bool:
    """Say whether a variable of this dtype is trained through a float32 master.

    Strict: float16 only; the original knew no bfloat16.
    """
    return dtype == "float16" if half_precision_scalars else dtype in LARGEST


def master_name(name: str) -> str:
    """Return the name of the master of the variable ``name``."""
    return f"{SCOPE}/{name}"


def scale_number(loss_scale: Any, masters_scale_type: bool = False) -> float | None:
    """Return the static scale that ``loss_scale`` stands for; None if it is no number.

    None stands for 1. Strict: only floats are numbers, and none is checked.

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


def halved_since(dtype: str, names: Sequence[str]) -> DtypeError:
    """Half-precision parameters without a master: they were not half at first."""
    shown = ", ".join(names[:AT_MOST]) + ", ..." * (len(names) > AT_MOST)
    return refusals.HALVED_SINCE.error(dtype=dtype, shown=shown)


def written_through_data(count: int) -> str:
    """Return the warning for weights that were changed without a trace."""
    expected = "weights to be written into under torch.no_grad()"
    got = f"{count} written through .data, which is looked for now and then only"
    remedy = (
        "the masters have taken the values over, those of other steps may be lost; "
        "write as in 'with torch.no_grad(): weight.clamp_(-1, 1)'"
    )
    return sentence(WRAPPER, expected, got, remedy)
