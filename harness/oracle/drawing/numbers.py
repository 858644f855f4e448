"""Shapes and values: ordinary ones, and those that are critical for arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.oracle.live.golden import encoded

Generator = np.random.Generator
Shape = tuple[int, ...]

# Below and above 8 elements (vectors of the kernels) and 64 (blocks of a sum), empty
# shapes, single elements and scalars.
SHAPES: Sequence[Shape] = (
    *[(), (1,), (3,), (7,), (8,), (9,), (17,), (65,), (300,), (0,)],
    *[(2, 3), (3, 2), (4, 1), (1, 5), (5, 8), (3, 16), (4, 67), (0, 3), (4, 0)],
    *[(1, 2, 3), (2, 3, 2), (3, 2, 9), (2, 0, 2)],
)


class Profile(NamedTuple):
    """The distribution of the numbers of a case.

    ``lowest`` and ``highest`` are decimal exponents of magnitudes, ``special`` is the
    share of elements that are NaN or infinite, ``size`` the largest number of elements
    of one variable.
    """

    name: str
    lowest: float
    highest: float
    special: float = 0.0
    dtype: str = "float32"
    size: int = 300


ORDINARY = Profile("ordinary", -1.5, 0.5)
HALF = Profile("half", -1.5, 0.5, dtype="float16")

PROFILES: Sequence[tuple[float, Profile]] = (
    (0.42, ORDINARY),
    (0.10, Profile("tiny", -46, -36)),
    (0.08, Profile("tiny", -30, -14)),
    (0.08, Profile("wide", -30, 16)),
    (0.06, Profile("wide", 17, 39, size=7)),
    (0.05, Profile("special", -1.5, 0.5, special=0.02)),
    (0.05, Profile("special", -1.5, 0.5, special=0.2, size=7)),
    (0.10, HALF),
    (0.06, Profile("wide", -8, 5.2, dtype="float16", size=7)),
)
"""Pairs (weight, profile). Squares of the second tiny profile are subnormal or 0.

Profiles with squares that overflow have fewer than eight elements. With more,
TensorFlow 1.15 refines the processor's approximation of a root, and the root of
infinity is NaN.
"""


def one_of(generator: Generator, choices: Sequence[Any]) -> Any:
    """Draw one of ``choices`` with equal probabilities."""
    return choices[int(generator.integers(len(choices)))]


def shape_of(generator: Generator, profile: Profile) -> Shape:
    """Draw a shape."""
    fitting = [shape for shape in SHAPES if math.prod(shape) <= profile.size]
    return tuple(one_of(generator, fitting))


def decimal(generator: Generator, lowest: float, highest: float) -> float:
    """Draw a number with three digits and a uniformly distributed exponent."""
    return float(f"{10 ** generator.uniform(lowest, highest):.2e}")


def random_array(generator: Generator, shape: Shape, profile: Profile) -> Any:
    """Draw an array, in the form of a golden file.

    A tenth of the elements are zeros of either sign. Another tenth are small whole
    numbers, so that sums cancel and norms are hit exactly.
    """
    exponents = generator.uniform(profile.lowest, profile.highest, shape)
    signs = generator.choice([-1.0, 1.0], shape)
    values = np.asarray(signs * 10.0**exponents)
    share = generator.random(shape)
    values = np.where(share < 0.1, signs * 0.0, values)
    if profile.name in ("ordinary", "special"):
        whole = generator.integers(-4, 5, shape).astype(float)
        values = np.where((share > 0.1) & (share < 0.2), whole, values)
    odd = generator.choice([np.nan, np.inf, -np.inf], shape)
    values = np.where(share > 1 - profile.special, odd, values)
    largest = float(np.finfo(profile.dtype).max)
    values = np.where(np.isinf(values), values, np.clip(values, -largest, largest))
    return encoded(values.astype(profile.dtype))
