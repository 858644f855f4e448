"""The models of the benchmarks: nothing but the shapes of their tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockstep.interface import Array
from lockstep.spec.errors import unknown_name

__all__ = ["MODELS", "arrays"]

Shape = tuple[int, ...]


def _transformer(width: int, layers: int, words: int, positions: int) -> list[Shape]:
    """Return the shapes of a GPT-like decoder: 12 tensors a layer, 4 around them."""
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
    "T25M": _transformer(width=384, layers=11, words=8192, positions=512),
    "S400": [(64, 64)] * 400,
    "S1000": [(64,)] * 1000,
    "smoke": [(8, 8)] * 4,
}


def arrays(model: str, seed: int) -> list[Array]:
    """Draw a float32 array for each tensor of the model, of deviation 0.02."""
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) * 0.02 for shape in MODELS[model]]
