"""The handwritten digits of scikit-learn, split by a seed."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from lockstep.interface import Array

INPUTS, CLASSES = 65, 10

HELD_OUT = 360
"""The number of held-out images."""


class Images(NamedTuple):
    """A set of n digits.

    Attributes:
        features: [n, 65] float32, 64 pixels between -1 and 1 and a constant 1.
        digit: [n] int32, 0 to 9.
    """

    features: Array
    digit: Array


def split(stream: np.random.Generator) -> tuple[Images, Images]:
    """Return a random split into training images and held-out images."""
    images = _all()
    order = stream.permutation(len(images.digit))
    training, held_out = (
        Images(images.features[rows], images.digit[rows])
        for rows in (order[HELD_OUT:], order[:HELD_OUT])
    )
    return training, held_out


@cache
def _all() -> Images:
    # Imported here, because settings need the numbers above without scikit-learn.
    from sklearn.datasets import load_digits

    digits = load_digits()
    pixels = np.pad(digits.data / 8 - 1, ((0, 0), (0, 1)), constant_values=1)
    return Images(pixels.astype(np.float32), digits.target.astype(np.int32))
