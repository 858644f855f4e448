"""Clipping by the global norm: three functions, and their norm."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.pytorch import (
    clip_by_global_norm,
    clip_gradients_by_global_norm,
    clip_gradients_by_norm,
    post_process_gradients,
)

SPARSE = torch.sparse_coo_tensor(
    [[2, 0, 2]], [[1.0], [4.0], [2.0]], (3, 1), check_invariants=True
)
# torch adds up rows of this many elements at once.
BLOCK = 1 << 14


def by_list(gradients, limit):
    """Clip a list of tensors."""
    return clip_by_global_norm(gradients, limit)[0]


def by_norm(gradients, limit):
    """Clip pairs with parameters of the same dtypes."""
    pairs = [(g, torch.zeros(1) if g is None else zeros_like(g)) for g in gradients]
    return [gradient for gradient, _ in clip_gradients_by_norm(pairs, limit)]


def by_global_norm(gradients, limit):
    """Clip pairs with anything as parameters."""
    pairs = [(g, k) for k, g in enumerate(gradients)]
    clipped, _ = clip_gradients_by_global_norm(pairs, limit)
    assert [k for _, k in clipped] == list(range(len(gradients)))
    return [gradient for gradient, _ in clipped]


def zeros_like(gradient: Tensor) -> Parameter:
    return Parameter(torch.zeros_like(gradient.to_dense()))


FUNCTIONS = {"list": by_list, "norm": by_norm, "global norm": by_global_norm}
each = pytest.mark.parametrize("clip", FUNCTIONS.values(), ids=FUNCTIONS)


@each
def test_gradients_above_the_norm_are_scaled_down_to_it(clip):
    given = [torch.tensor([3.0]), None, torch.tensor([[4.0]]), torch.tensor(0.0)]
    first, absent, second, third = clip(given, 2.5)
    assert (first.item(), absent, second.item()) == (1.5, None, 2.0)
    assert third.shape == ()
    assert given[0].item() == 3.0


@each
def test_gradients_below_the_norm_keep_their_bits(clip):
    gradient = torch.randn(50, generator=torch.Generator().manual_seed(0))
    (below,) = clip([gradient], 80.0)
    assert torch.equal(below, gradient)


@each
@pytest.mark.parametrize("power", [-20, -1, 3, 40])
def test_scaling_all_by_a_power_of_two_changes_no_bit(clip, power):
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(n, generator=generator) for n in (3, 50, 5000)]
    clipped = clip([g * 2.0**power for g in gradients], 2.0**power)
    for got, expected in zip(clipped, clip(gradients, 1.0), strict=True):
        assert torch.equal(got, expected * 2.0**power)


@each
def test_another_order_clips_to_the_same_norm(clip):
    gradients = [torch.full((n,), float(n)) for n in (3, 50, 5000)]
    clipped = clip(gradients, 1.0)
    for got, expected in zip(clip(gradients[::-1], 1.0), clipped[::-1], strict=True):
        # The norm promises 1e-6, and is added up in another order.
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=0)


@each
def test_rows_of_a_sparse_gradient_are_summed_in_the_norm_and_stay_sparse(clip):
    (clipped,) = clip([SPARSE], 2.5)
    assert clipped.is_sparse
    assert clipped.to_dense().flatten().tolist() == [2.0, 0.0, 1.5]


@each
def test_dtypes_mix_and_float16_does_not_overflow(clip):
    first, second = clip([torch.tensor([300.0]).half(), torch.tensor([400.0])], 250.0)
    assert (first.item(), second.item()) == (150.0, 200.0)
    assert first.dtype == (torch.float32 if clip is by_list else torch.float16)


@each
def test_complex_gradients_are_refused(clip):
    with pytest.raises(TypeError, match="complex64"):
        clip([torch.ones(2), torch.tensor([3 + 4j, 0j])], 2.5)
    with pytest.raises(TypeError, match="complex64"):
        clip_by_global_norm([torch.tensor([3 + 4j])], 2.5, 1.0)


@each
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_shows(clip, value):
    first, second = clip([torch.tensor([value]), torch.ones(2)], 1.0)
    assert first.isnan().all()
    finite = value == math.inf and clip is not by_global_norm
    assert torch.equal(second.nan_to_num(-1.0), torch.full((2,), finite - 1.0))


@each
@pytest.mark.parametrize("gradients", [[None], [torch.zeros(2)], [torch.zeros(0)]])
def test_without_a_nonzero_element_nothing_changes(clip, gradients):
    assert all(g is None or not g.any() for g in clip(gradients, 1.0))


@each
@pytest.mark.parametrize("clip_norm", [0.5, 1 / 3, 7.0])
@pytest.mark.parametrize("norm", [1.0, 1.7, 3e-39, 1e-45, 1e19])
def test_the_factor_has_the_bits_of_float32_arithmetic(clip, norm, clip_norm):
    number, limit = torch.tensor(norm), torch.tensor(clip_norm)
    factor = limit * torch.minimum(1 / number, 1 / limit)
    (clipped,) = clip([number.reshape(1)], clip_norm)
    assert torch.equal(clipped, number.reshape(1) * factor)


def test_a_norm_that_is_not_finite_can_be_an_error():
    with pytest.raises(ValueError, match="finite global norm"):
        clip_gradients_by_global_norm(
            [(torch.tensor([math.nan]), None)], 1.0, error_if_nonfinite=True
        )


def test_integers_are_clipped_in_float32_only_where_the_result_is_float32():
    clipped, norm = clip_by_global_norm([torch.tensor([3, 4])], 2.5)
    assert (clipped[0].tolist(), norm.item()) == ([1.5, 2.0], 5.0)
    with pytest.raises(TypeError, match="int64"):
        clip_gradients_by_global_norm([(torch.tensor([3, 4]), None)], 2.5)


@pytest.mark.parametrize("count", [1, 7, BLOCK, BLOCK + 1, 5 * BLOCK - 1])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_norm_is_accurate(count, dtype):
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(2, count, generator=generator).to(dtype)
    exact = values.double().square().sum().sqrt().item()
    _, norm = clip_by_global_norm([values[0], values[1]], 1.0)
    # 1e-6 is what the norm promises, here and below.
    assert norm.item() == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_norm_of_a_long_tensor_is_taken_in_float32(dtype):
    values = torch.full((2 * BLOCK + 3,), 1000.0).to(dtype)
    exact = values.double().square().sum().sqrt().item()
    _, norm = clip_by_global_norm([values], 1.0)
    # Sums of equal elements round the same way each time: 1.5e-5 was measured.
    assert norm.item() == pytest.approx(exact, rel=2e-5)


@pytest.mark.slow
def test_the_norm_of_a_hundred_million_elements_is_right_to_a_millionth():
    values = torch.empty(100_000_000).uniform_(0.1, 0.3)
    chunks = values.split(1 << 20)
    exact = math.sqrt(sum(chunk.double().square().sum().item() for chunk in chunks))
    _, norm = clip_gradients_by_global_norm([(values, None)], 1.0)
    assert norm.item() == pytest.approx(exact, rel=1e-6)


def test_the_norm_may_be_given_left_out_or_come_with_an_iterator():
    tensors = [torch.tensor([3.0, 4.0]), None, torch.tensor(12.0)]
    clipped, norm = clip_by_global_norm(iter(tensors), 6.5)
    again, _ = clip_by_global_norm(tensors, 6.5, 13)
    assert norm.item() == 13.0
    assert torch.equal(clipped[0], again[0])
    assert torch.equal(clipped[2], again[2])
    assert (clipped[1], clipped[2].shape) == (None, ())


@pytest.mark.parametrize("norm", [0.0, math.inf, math.nan])
def test_norms_of_gradients_that_vanished_or_overflowed_are_taken(norm):
    _, given = clip_by_global_norm([torch.ones(2)], 1.0, norm)
    torch.testing.assert_close(given, torch.tensor(norm), equal_nan=True)


def test_clipping_in_place_writes_only_above_the_limit_and_where_gradients_are():
    gradients = [torch.tensor([3.0, 4.0]), torch.tensor([0.5, 0.0])]
    pairs = [(g, torch.zeros(2, requires_grad=True)) for g in gradients]
    post_process_gradients(pairs, [], 0.1, 8.0, None, in_place=True)
    assert [g._version for g in gradients] == [0, 0]
    expected = [g for g, _ in clip_gradients_by_norm(pairs, 4.0)]
    clipped = post_process_gradients(pairs, [], 0.1, 4.0, None, in_place=True)
    assert all(c is g for (c, _), g in zip(clipped, gradients, strict=True))
    assert all(map(torch.equal, gradients, expected))
