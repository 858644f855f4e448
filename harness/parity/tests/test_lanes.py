"""Strict norms are added up in eight lanes, as the recording's kernel did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.interface import Array
from lockstep.reference import strict as strict_reference
from lockstep.reference.arrays import lane_sum

SIZES = [1, 7, 8, 63, 64, 65, 1025, 3001, 8191, 8192]
"""From 8193 on the original divides the elements among threads."""


def one_by_one(values: Array) -> np.float32:
    """Add in eight lanes, one element after the other: nothing of NumPy's order."""
    lanes, whole = [np.float32(0)] * 8, values.size - values.size % 8
    for position in range(whole):
        lanes[position % 8] = np.float32(lanes[position % 8] + values[position])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[k] + lanes[k + half] for k in range(half)]
    rest = np.float32(0)
    for value in values[whole:]:
        rest = np.float32(rest + value)
    return lanes[0] + rest


def drawn(size: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, size]).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_up_to_8192_elements_are_added_in_eight_lanes(size: int) -> None:
    squares = np.square(drawn(size))
    assert lane_sum(squares) == one_by_one(squares)


def test_more_are_added_up_accurately() -> None:
    squares = np.full(1_000_000, 0.1, np.float32)
    exact = np.sum(squares, dtype=np.float64)
    assert lane_sum(squares).dtype == np.float32
    assert float(lane_sum(squares)) == pytest.approx(float(exact), rel=1e-7)


def novograd_of_reference(gradient: Array, weight: Any) -> Any:
    pairs = [(gradient, weight)]
    strict_reference.NovoGrad(0.1).apply_gradients(pairs)
    return pairs


@pytest.mark.parametrize("size", [8, 65, 1025, 8192])
def test_strict_novograd_of_the_reference_divides_by_that_norm(size: int) -> None:
    gradient, variable = drawn(size, 1), reference.Variable("w", drawn(size, 2))
    [(got, _)] = novograd_of_reference(gradient, variable)
    root = np.sqrt(one_by_one(np.square(gradient)) + np.float32(1e-8))
    np.testing.assert_array_equal(got, gradient * (np.float32(1) / root))
