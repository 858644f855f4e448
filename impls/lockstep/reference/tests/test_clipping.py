"""Clipping in NumPy to the bit: factors, subnormals, orders of sums, scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.interface import Array, Rows
from lockstep.reference import Variable, clip_by_global_norm, strict
from lockstep.reference.arrays import lane_sum
from lockstep.reference.clipping import clip_scale, global_norm
from lockstep.reference.variable_clipping import strict_norms

NAN = np.nan
FLUSHED: dict[str, tuple[Any, float, Any]] = {
    "a product with max_norm": ([[1e-30, 2e-30]], 1e-10, [[0, 0]]),
    "a square": ([[8e-20, 9e-20]], 1e-19, [[0, 0]]),
    "a square, no product": ([[1e-19, 1e-19]], 1.25e-19, [[1e-19, 1e-19]]),
    "an element that a limit below 0 makes large": ([[1e-40, 1]], -1e20, [[0, -1e20]]),
    "max_norm": ([[1e-30, 1e-30], [1, 2]], 1e-40, [[NAN, NAN], [0, 0]]),
    "what is left": ([[9e-38, 8e-38]], 1e-37, [[0, 0]]),
    "an element": ([[1e-39, 1.0]], 4.0, [[0, 1]]),
    "nothing": ([[0.75, 1.0]], 0.625, [[0.375, 0.5]]),
}


def stepped(lockstep: Any, values: Any, limit: float, gradient: Any = None) -> Array:
    """Return what clipping alone makes of ``values``."""
    w = Variable("w", values, np.float32)
    sgd = lockstep.GradientDescentOptimizer(1.0)
    axes = [1] if np.ndim(values) else []
    clipping = lockstep.VariableClippingOptimizer(sgd, {w: axes}, limit)
    zeros = np.zeros_like(w.value)
    clipping.apply_gradients([(zeros if gradient is None else gradient, w)])
    return w.value


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", FLUSHED)
def test_strict_treats_subnormals_as_the_kernels_did(name: str, sparse: bool) -> None:
    values, limit, expected = FLUSHED[name]
    count = len(values)
    zeros = np.zeros((count, 2), np.float32)
    named = Rows(np.arange(count), zeros, (count, 2))
    found = stepped(strict, values, limit, named if sparse else None)
    np.testing.assert_array_equal(found, np.float32(expected))


def test_the_default_keeps_subnormals() -> None:
    """Rows below the norm keep their bits, subnormal elements too."""
    values = np.float32([[1e-39, 1.0], [1e-45, 2e-45], [1e-30, 2e-30]])
    np.testing.assert_array_equal(stepped(reference, values, 4.0), values)
    assert (np.abs(values) < np.finfo(np.float32).smallest_normal).any()


@pytest.mark.parametrize("lockstep", [reference, strict], ids=["default", "strict"])
def test_a_scalar_is_clipped_in_magnitude(lockstep: Any) -> None:
    found = stepped(lockstep, -3.0, 0.25)
    assert found.shape == ()
    assert found == -0.25


def half_sum(values: Array) -> Any:
    """Add float16 in eight lanes, these in float32, then what is left over."""
    lanes = np.zeros(8, np.float16)
    whole = len(values) // 8 * 8
    for start in range(0, whole, 8):
        lanes = (lanes + values[start : start + 8]).astype(np.float16)
    pairs = [
        np.float32(a) + np.float32(b) for a, b in zip(lanes[:4], lanes[4:], strict=True)
    ]
    total = np.float16((pairs[0] + pairs[2]) + (pairs[1] + pairs[3]))
    rest = np.float16(0)
    for value in values[whole:]:
        rest = np.float16(rest + value)
    return np.float16(total + rest)


@pytest.mark.parametrize("length", [3, 8, 20, 131])
def test_float16_sums_are_folded_in_float32(length: int) -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        values = generator.uniform(0.2, 1, (1, length)).astype(np.float16)
        squares = np.square(values)[0]
        expected = np.sqrt(half_sum(squares))
        assert strict_norms(values, [1]).item() == expected
        halves = (squares * np.float16(0.5)).astype(np.float16)
        whole = np.sqrt(half_sum(halves) * np.float16(2))
        assert global_norm([values], np.dtype(np.float16)) == whole


def test_the_strict_clipping_function_flushes_at_every_operation() -> None:
    pairs = [(np.float32([3e-38, 1.0, 2e-37]), "v"), (np.float32([2.0]), "w")]
    clipped, _ = strict.clip_gradients_by_global_norm(pairs, 0.125)
    assert clipped[0][0].tolist()[::2] == [0, 0]
    kept, _ = reference.clip_gradients_by_global_norm(pairs, 0.125)
    assert 0 < kept[0][0][0] < np.finfo(np.float32).smallest_normal
    small = [(np.float32([1e-19, 1.2e-19]), "v")]
    assert strict.clip_gradients_by_global_norm(small, 1e-19)[1] == 0
    assert reference.clip_gradients_by_global_norm(small, 1e-19)[1] > 0
    assert clip_scale(np.asarray(np.float32(5)), 1e38, flush=True) == 0
    assert clip_scale(np.asarray(np.float32(5)), 1e38) > 0


@pytest.mark.parametrize("limit", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("flush", [False, True])
def test_the_factor_is_1_below_the_limit_and_their_ratio_above(
    limit: float, flush: bool
) -> None:
    below, above = np.float32(limit / 4), np.float32(limit * 4)
    assert clip_scale(np.asarray(below), limit, flush) == 1
    assert clip_scale(np.asarray(above), limit, flush) == 0.25


@pytest.mark.parametrize("size", [8193, 10_000, 16_384])
def test_more_than_8192_elements_are_added_up_in_float64(size: int) -> None:
    # Behind 2^24, the next float32 number is 2 further: a 1 would be lost.
    values = np.ones(size, np.float32)
    values[0] = 2.0**24
    assert lane_sum(values) == np.float32(2.0**24 + size - 1)


@pytest.mark.parametrize("size", [4096, 4608, 8192])
def test_up_to_8192_elements_are_added_up_in_eight_lanes(size: int) -> None:
    # The first lane stays at 2^24, where a 1 is lost, so its other elements count as 0.
    values = np.ones(size, np.float32)
    values[0] = 2.0**24
    assert lane_sum(values) == np.float32(2.0**24 + 7 * size / 8)


def test_a_norm_whose_square_is_subnormal_is_not_lost() -> None:
    _, norm = clip_by_global_norm([np.float32([2.0**-70])], 1.0)
    assert norm == 2.0**-70
