"""What float16 does to a number, and what a scaler does after one overflow.

A number of magnitude x becomes 0 in float16 where x <= 2**-25, half of its smallest one
(2**-24; the tie goes to 0), is subnormal below 2**-14, and infinite from 65520 on.
Multiplied by 2**k before and divided after, the limits are those divided by 2**k.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.statistics import Floats
from lockstep import registry
from lockstep.interface import Array

__all__ = [
    "FLUSHED",
    "LARGEST",
    "LOWEST",
    "SUBNORMAL",
    "Recovery",
    "count",
    "flushed",
    "histogram",
    "recovery",
    "zeros",
]

FLUSHED, SUBNORMAL, LARGEST = -25, -14, 16
"""log2 of float16's limits: below the first 0, below the second fewer bits; the last
(65536, rounded up from 65520) is the first power of two that is infinite."""

LOWEST, HIGHEST = -70, 10
"""The bins of a histogram: floor(log2 |g|), the outermost ones open."""


def zeros(values: Array) -> float:
    """Return the share of values that are 0."""
    return float(np.mean(values == 0))


def count(counts: dict[str, int], gradients: Mapping[str, Array]) -> None:
    """Add gradients to ``counts``: KIND/EXPONENT, of zeros KIND/zero."""
    for kind, values in gradients.items():
        whole, exponent = np.frexp(np.abs(values[np.isfinite(values)]))
        # frexp's mantissa is in [0.5, 1): the floor of log2 is one less.
        bins = np.clip(exponent[whole > 0] - 1, LOWEST, HIGHEST)
        for value, number in zip(*np.unique(bins, return_counts=True), strict=True):
            name = f"{kind}/{value}"
            counts[name] = counts.get(name, 0) + int(number)
        name = f"{kind}/zero"
        counts[name] = counts.get(name, 0) + int(np.sum(whole == 0))


def histogram(summary: Mapping[str, float], kind: str) -> tuple[Floats, Floats]:
    """Return the exponents LOWEST to HIGHEST and the count of each."""
    exponents = np.arange(LOWEST, HIGHEST + 1, dtype=float)
    counts = [summary.get(f"{kind}/{int(each)}", 0.0) for each in exponents]
    return exponents, np.asarray(counts, float)


def flushed(exponents: Floats, counts: Floats, scale_log2: float) -> float:
    """Return the share of numbers that float16 makes 0 under a scale 2**scale_log2."""
    return float(counts[exponents + scale_log2 < FLUSHED].sum() / counts.sum())


class Recovery(NamedTuple):
    """What one overflow does to a scaler that otherwise sees the same gradients.

    Attributes:
        drop_log2: by how many powers of two the scale falls.
        pinned: updates that the scale then is at 1, the minimum.
        recovery: updates until it is above half of what it was; NaN: not within those
            tried.
    """

    drop_log2: float
    pinned: int
    recovery: float


@cache
def recovery(
    kind: str, arguments: tuple[tuple[str, float], ...], strict: bool, amax: float
) -> Recovery:
    """Show a scaler of the reference 2000 steps, an infinity, and 20000 steps more.

    Args:
        kind: ``dynamic``, ``Backoff`` or ``LogMax``.
        arguments: its arguments, as pairs.
        amax: the largest gradient of every step but one, before the scale.
    """
    warm, after = 2000, 20_000
    stream = np.full(warm + 1 + after, amax, np.float32)
    stream[warm] = np.inf
    scales = _scales(kind, dict(arguments), strict, stream)
    before, later = scales[warm - 1], scales[warm:]
    back = np.flatnonzero(later > before / 2)
    return Recovery(
        float(np.log2(before / later.min())),
        int(np.sum(later == 1.0)),
        float(back[0]) if len(back) else float("nan"),
    )


def _scales(
    kind: str, arguments: dict[str, float], strict: bool, stream: Array
) -> npt.NDArray[np.float64]:
    """Return the scale after each update, of which each sees one largest gradient."""
    reference = registry.load("reference", strict)
    if kind == "dynamic":
        dynamic = reference.DynamicLossScale(**arguments)
        return np.array([(dynamic.update([x]), float(dynamic()))[1] for x in stream])
    scaler = reference.AutomaticLossScaler(kind, arguments)
    scales = [(scaler.update_op(False, x), float(scaler.loss_scale))[1] for x in stream]
    return np.array(scales)
