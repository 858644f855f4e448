"""The models of the benchmarks, which are only the shapes of their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from lockstep.errors import unknown_name
from lockstep.interface import Array

__all__ = ["MODELS", "arrays", "shapes_of"]

Shape = tuple[int, ...]

ELEMENTS = 1_024_000
"""The number of elements of the models that differ only in the number of tensors."""


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
    "T3M": _transformer(width=136, layers=11, words=3072, positions=512),
    "T8M": _transformer(width=224, layers=11, words=5120, positions=512),
    "T25M": _transformer(width=384, layers=11, words=8192, positions=512),
    "E25M": [(65_536, 384)],
    "S20": [(32, 32)] * 20,
    "S400": [(64, 64)] * 400,
    "S1000": [(64,)] * 1000,
    **{f"N{count}": [(ELEMENTS // count,)] * count for count in (10, 40, 200, 1000)},
    "smoke": [(8, 8)] * 4,
}
"""The T models have 136 tensors each, the N models ``ELEMENTS`` elements each."""


def shapes_of(model: str) -> list[Shape]:
    """Return the shapes of a model's tensors, or raise UnknownNameError."""
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    return MODELS[model]


@lru_cache(maxsize=2)
def arrays(model: str, seed: int) -> tuple[Array, ...]:
    """Return a random float32 array of deviation 0.02 for each tensor of the model.

    The arrays are shared, so callers must copy them and not write to them.
    """
    rng = np.random.default_rng(seed)
    sample = [rng.standard_normal(shape, np.float32) for shape in shapes_of(model)]
    for array in sample:
        array *= 0.02
        array.flags.writeable = False
    return tuple(sample)
