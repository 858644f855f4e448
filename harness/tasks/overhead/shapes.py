"""The benchmarks of steps: a file a backend, in which each benchmark is a function.

``NAME(seed, device, **setup)`` returns the builders of its variants, where ``NAME`` is
the ``task`` in ``harness/bench/*.toml``. No network is run. Gradients are drawn once
and stay constant, because only the cost of the optimizer's step is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from lockstep.interface import Array

Shape = tuple[int, ...]

ADAM_RATE, CLIP = 1e-4, 1.0
"""Adam's rate; the largest global norm, which gradients of deviation 0.02 exceed."""

LOSS_SCALE, MASTERS_SCALE = 2.0**15, 2.0**10
"""The initial loss scale, and the constant one of steps on masters."""

LARC_RATE, LARC = 0.1, {"larc_eta": 0.001, "epsilon": 1e-7}
"""LARC's learning rate, and its share of it with the constant added to a norm."""

NOVOGRAD = {"beta1": 0.95, "beta2": 0.98, "epsilon": 1e-8}
"""The defaults of the constructor."""

WIDTH, NAMED, SMALL = 64, 512, 10_000
"""Elements of a table's row, rows of a step, and rows of the small table."""

LIMIT, SHORT, LONG = 1.0, 0.05, 0.5
"""The limit of a row's norm; the elements of rows of norm 0.4 and of norm 4."""

ZEROS = {"none": 0.0, "half": 0.5}
"""Name -> the share of a model's elements with zero gradients."""


def _transformer(width: int, layers: int, words: int, positions: int) -> list[Shape]:
    """Return the shapes of a GPT-like decoder: 12 tensors per layer, and 4 others."""
    norm: list[Shape] = [(width,), (width,)]
    attention: list[Shape] = [
        (width, 3 * width),
        (3 * width,),
        (width, width),
        (width,),
    ]
    dense: list[Shape] = [
        (width, 4 * width),
        (4 * width,),
        (4 * width, width),
        (width,),
    ]
    layer = [*norm, *attention, *norm, *dense]
    return [(words, width), (positions, width), *(layer * layers), *norm]


MODELS: Mapping[str, list[Shape]] = {
    "T1M": _transformer(width=80, layers=11, words=2048, positions=512),
    "T25M": _transformer(width=384, layers=11, words=8192, positions=512),
    "E25M": [(65_536, 384)],
    "S20": [(32, 32)] * 20,
    "S400": [(64, 64)] * 400,
    "S1000": [(64,)] * 1000,
    "smoke": [(8, 8)] * 4,
}
"""Name -> the shapes of a model's tensors; a transformer, an embedding, many alike."""


@lru_cache(maxsize=2)
def arrays(model: str, seed: int) -> tuple[Array, ...]:
    """Return a random float32 array of deviation 0.02 for each tensor of the model.

    The arrays are shared, so callers must copy them and not write to them.
    """
    rng = np.random.default_rng(seed)
    sample = [rng.standard_normal(shape, np.float32) for shape in MODELS[model]]
    for array in sample:
        array *= 0.02
        array.flags.writeable = False
    return tuple(sample)


def gradients(model: str, scale: float = 1.0, zeros: str = "none") -> list[Array]:
    """Return the gradients of a model times ``scale``; the last ones are all zero.

    Their share is of the elements, because every other tensor of a transformer would
    have nearly all elements or nearly none.
    """
    drawn = arrays(model, seed=1)
    sizes = [value.size for value in drawn]
    starts = np.cumsum(sizes) - sizes
    nonzero = starts < (1 - ZEROS[zeros]) * sum(sizes)
    return [value * scale * keep for value, keep in zip(drawn, nonzero, strict=True)]


def named_rows(vocabulary: int, seed: int) -> Array:
    """Draw the rows of a step, int64; a row may be drawn twice."""
    return np.random.default_rng(seed).integers(vocabulary, size=NAMED)
