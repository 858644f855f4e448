"""The limits of float16, and the reaction of a scaler to one overflow.

In float16 a number of magnitude x becomes 0 if x <= 2**-25, half of the smallest number
2**-24 (the tie rounds to 0). It is subnormal below 2**-14, and infinite from 65520 on.
With a scale of 2**k, these limits are divided by 2**k.
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
"""log2 of float16's limits. Below the first, numbers are 0. Below the second, they have
fewer bits. The last (65536) is the first power of two that is infinite."""

LOWEST, HIGHEST = -70, 10
"""The outermost bins of a histogram of floor(log2 |g|), which are open."""


def zeros(values: Array) -> float:
    """Return the share of values that are 0."""
    return float(np.mean(values == 0))


def count(counts: dict[str, int], gradients: Mapping[str, Array]) -> None:
    """Add the numbers of gradients to ``counts``, as KIND/EXPONENT and KIND/zero."""
    for kind, values in gradients.items():
        whole, exponent = np.frexp(np.abs(values[np.isfinite(values)]))
        # frexp's mantissa is in [0.5, 1), so the floor of log2 is one less.
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
    """Return the share that becomes 0 in float16 with a scale 2**scale_log2."""
    return float(counts[exponents + scale_log2 < FLUSHED].sum() / counts.sum())


class Recovery(NamedTuple):
    """The effect of one overflow on a scaler among otherwise equal gradients.

    Attributes:
        drop_log2: the powers of two by which the scale falls.
        pinned: the number of later updates with a scale of 1, the minimum.
        recovery: the updates until it is above half of its previous value; NaN if it
            does not recover.
    """

    drop_log2: float
    pinned: int
    recovery: float


@cache
def recovery(
    kind: str, arguments: tuple[tuple[str, float], ...], strict: bool, amax: float
) -> Recovery:
    """Run a scaler of the reference for 2000 steps, an infinity, and 20000 steps.

    Args:
        kind: ``dynamic``, ``Backoff`` or ``LogMax``.
        arguments: its arguments, as pairs.
        amax: the largest unscaled gradient of every step but the infinite one.
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
    """Return the scale after each update; ``stream`` has the largest gradients."""
    reference = registry.load("reference", strict)
    if kind == "dynamic":
        dynamic = reference.DynamicLossScale(**arguments)
        return np.array([(dynamic.update([x]), float(dynamic()))[1] for x in stream])
    scaler = reference.AutomaticLossScaler(kind, arguments)
    scales = [(scaler.update_op(False, x), float(scaler.loss_scale))[1] for x in stream]
    return np.array(scales)
