"""Row clipping under strict to the bit: subnormals, orders of sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import VariableClippingOptimizer, strict
from lockstep.pytorch.clipping.clip_gradients import clip_factor, global_norm
from lockstep.pytorch.clipping.clip_rows import LEAF, row_norms

NAN = float("nan")
FLUSHED = {
    "a product with max_norm": ([[1e-30, 2e-30]], 1e-10, [[0, 0]]),
    "a square": ([[8e-20, 9e-20]], 1e-19, [[0, 0]]),
    "a square, no product": ([[1e-19, 1e-19]], 1.25e-19, [[1e-19, 1e-19]]),
    "an element that a limit below 0 makes large": ([[1e-40, 1]], -1e20, [[0, -1e20]]),
    "max_norm": ([[1e-30, 1e-30], [1, 2]], 1e-40, [[NAN, NAN], [0, 0]]),
    "what is left": ([[9e-38, 8e-38]], 1e-37, [[0, 0]]),
    "an element": ([[1e-39, 1.0]], 4.0, [[0, 1]]),
    "nothing": ([[0.75, 1.0]], 0.625, [[0.375, 0.5]]),
}


def stepped(wrapper, values, limit, sparse=False):
    """Return what clipping alone makes of ``values``."""
    parameter = Parameter(torch.tensor(values, dtype=torch.float32))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    gradient = torch.zeros_like(parameter)
    if sparse:
        every = torch.arange(len(values))[None]
        zeros = torch.zeros(len(values), 2)
        gradient = torch.sparse_coo_tensor(
            every, zeros, parameter.shape, check_invariants=True
        )
    wrapper(sgd, {parameter: [1]}, limit).apply_gradients([(gradient, parameter)])
    return parameter.detach()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", FLUSHED)
def test_strict_treats_subnormals_as_the_kernels_did(name, sparse):
    values, limit, expected = FLUSHED[name]
    found = stepped(strict.VariableClippingOptimizer, values, limit, sparse)
    np.testing.assert_array_equal(found.numpy(), np.float32(expected))


def test_a_complex_row_has_the_norm_of_its_magnitudes_under_strict_too() -> None:
    parameter = Parameter(torch.tensor([[3 + 4j, 0j], [0.25 + 0j, 0.25j]]))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    wrapper = strict.VariableClippingOptimizer(sgd, {parameter: [1]}, 2.5)
    wrapper.apply_gradients([(torch.zeros_like(parameter), parameter)])
    # Powers of 2 and a factor of 0.5: no product is rounded.
    assert parameter.tolist() == [[1.5 + 2j, 0j], [0.25 + 0j, 0.25j]]


def test_the_default_keeps_subnormals():
    """Rows below the norm keep their bits, subnormal elements too."""
    values = [[1e-39, 1.0], [1e-45, 2e-45], [1e-30, 2e-30]]
    found = stepped(VariableClippingOptimizer, values, 4.0)
    np.testing.assert_array_equal(found.numpy(), np.float32(values))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 40), [1]), ((21, 3), [0]), ((5, 2, 9), [0, 2]), ((2, 3, 7), [-2, -1])],
    ids=str,
)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_squares_are_added_in_the_original_order(shape, axes, dtype, seed):
    """In eight lanes where a sum's elements lie side by side, else one by one."""
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    values = drawn.to(dtype)
    squares = values.square().numpy()
    summed = [axis % len(shape) for axis in axes]
    kept = [axis for axis in range(len(shape)) if axis not in summed]
    rows = squares.transpose(*kept, *summed)
    rows = rows.reshape(-1, int(np.prod([shape[axis] for axis in summed])))
    side_by_side = kept == list(range(len(kept)))
    sums = np.array([in_lanes(r) if side_by_side else one_by_one(r) for r in rows])
    expected = np.sqrt(sums.astype(np.float64)).astype(squares.dtype)
    np.testing.assert_array_equal(
        row_norms(values, axes, True).flatten().numpy(), expected
    )


def one_by_one(values):
    total = values.dtype.type(0)
    for value in values:
        total = values.dtype.type(total + value)
    return total


def in_lanes(values):
    lanes = np.zeros(8, values.dtype)
    whole = len(values) // 8 * 8
    for start in range(0, whole, 8):
        lanes = (lanes + values[start : start + 8]).astype(values.dtype)
    pairs = [
        np.float32(a) + np.float32(b) for a, b in zip(lanes[:4], lanes[4:], strict=True)
    ]
    total = values.dtype.type((pairs[0] + pairs[2]) + (pairs[1] + pairs[3]))
    return values.dtype.type(total + one_by_one(values[whole:]))


def test_long_sums_are_right_in_any_order():
    values = torch.full((2, LEAF + 1), 0.5)
    expected = 0.5 * (LEAF + 1) ** 0.5
    assert row_norms(values, [1], True).flatten().tolist() == pytest.approx(
        [expected] * 2
    )


def test_the_strict_clipping_function_flushes_at_every_operation():
    pairs = [(torch.tensor([3e-38, 1.0, 2e-37]), "v"), (torch.tensor([2.0]), "w")]
    clipped, _ = strict.clip_gradients_by_global_norm(pairs, 0.125)
    assert clipped[0][0].tolist()[::2] == [0, 0]
    small = [torch.tensor([1e-19, 1.2e-19])]
    assert global_norm(small, torch.float32, flush=True) == 0
    assert global_norm(small, torch.float32) > 0
    assert clip_factor(torch.tensor(5.0), 1e38, flush=True) == 0
    assert clip_factor(torch.tensor(5.0), 1e38) > 0
