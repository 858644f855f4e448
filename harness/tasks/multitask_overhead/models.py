"""The models of the benchmarks: nothing but the shapes of their tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lockstep.interface import Array
from lockstep.spec.errors import unknown_name

__all__ = ["MODELS", "arrays", "zero_flags"]

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
    "smoke": [(8, 8)] * 4,
}


def arrays(model: str, seed: int) -> list[Array]:
    """Draw a float32 array for each tensor of the model."""
    if model not in MODELS:
        raise unknown_name("model", model, MODELS)
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) * 0.02 for shape in MODELS[model]]


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
