"""Clipping by the global norm."""

from __future__ import annotations

import math

import pytest
import torch

from lockstep.pytorch import clip_gradients_by_global_norm
from lockstep.pytorch.clipping.clip_by_global_norm import clip_scale
from lockstep.pytorch.tensors.norms import BLOCK, accurate_norm, norm_of_each

SPARSE = torch.sparse_coo_tensor(
    [[2, 0, 2]], [[1.0], [4.0], [2.0]], (3, 1), check_invariants=True
)


def clip(gradients, *args, function=clip_gradients_by_global_norm, **options):
    """Clip a list of gradients; return the clipped ones and the norm."""
    pairs, norm = function([(g, k) for k, g in enumerate(gradients)], *args, **options)
    assert [variable for _, variable in pairs] == list(range(len(gradients)))
    return [gradient for gradient, _ in pairs], norm


def test_gradients_above_the_norm_are_scaled_down_to_it():
    (first, absent, second), norm = clip(
        [torch.tensor([3.0]), None, torch.tensor([[4.0]])], 2.5
    )
    assert (first.item(), absent, second.item()) == (1.5, None, 2.0)
    assert norm.shape == ()
    assert (norm.item(), norm.dtype) == (5.0, torch.float32)


def test_gradients_below_the_norm_keep_their_values_and_are_never_written_to():
    gradient = torch.tensor([3.0, 4.0])
    [below], _ = clip([gradient], 8.0)
    [above], _ = clip([gradient], 0.5)
    assert below.tolist() == gradient.tolist() == [3.0, 4.0]
    assert above.tolist() == pytest.approx([0.3, 0.4])


def test_the_default_limit_is_twenty():
    [clipped], _ = clip([torch.tensor([40.0])])
    assert clipped.item() == 20.0


def test_rows_of_a_sparse_gradient_are_summed_in_the_norm_and_stay_sparse():
    [clipped], norm = clip([SPARSE], 2.5)
    assert norm.item() == 5.0
    assert clipped.is_sparse
    assert clipped.to_dense().flatten().tolist() == [2.0, 0.0, 1.5]


def test_dtypes_mix_and_float16_does_not_overflow():
    half = torch.tensor([300.0], dtype=torch.float16)
    (first, second, third), norm = clip(
        [half, torch.tensor([400.0]), torch.zeros(1).double()], 250.0
    )
    assert norm.item() == 500.0
    assert (first.item(), second.item()) == (150.0, 200.0)
    assert (first.dtype, third.dtype) == (torch.float16, torch.float64)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_makes_every_gradient_nan(value):
    clipped, norm = clip([torch.tensor([value]), torch.zeros(2)], 1.0)
    assert not norm.isfinite()
    assert all(gradient.isnan().all() for gradient in clipped)
    with pytest.raises(ValueError, match="expected a finite global norm, got"):
        clip([torch.tensor([value])], 1.0, error_if_nonfinite=True)


@pytest.mark.parametrize("gradients", [[None], [torch.zeros(2)], [torch.zeros(0)]])
def test_without_a_nonzero_element_the_norm_is_zero(gradients):
    clipped, norm = clip(gradients, 1.0, error_if_nonfinite=True)
    assert norm == 0
    assert all(g is None or not g.any() for g in clipped)


@pytest.mark.parametrize("count", [1, 7, BLOCK, BLOCK + 1, 3 * BLOCK, 5 * BLOCK - 1])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_norm_is_accurate(count, dtype):
    generator = torch.Generator().manual_seed(count)
    values = torch.randn(2, count, generator=generator).to(dtype)
    exact = values.double().square().sum().sqrt().item()
    assert accurate_norm([values[0], values[1]]).item() == pytest.approx(
        exact, rel=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_norm_of_a_long_tensor_is_taken_in_float32(dtype):
    values = torch.full((2 * BLOCK + 3,), 1000.0).to(dtype)
    exact = values.double().square().sum().sqrt().item()
    assert exact > torch.finfo(torch.float16).max
    (norm,) = norm_of_each([values]).tolist()
    # Sums of equal elements round the same way each time: 1.5e-5 was measured.
    assert norm == pytest.approx(exact, rel=2e-5)


@pytest.mark.slow
def test_the_norm_of_a_hundred_million_elements_is_right_to_a_millionth():
    values = torch.empty(100_000_000).uniform_(0.1, 0.3)
    chunks = values.split(1 << 20)
    exact = math.sqrt(sum(chunk.double().square().sum().item() for chunk in chunks))
    assert accurate_norm([values]).item() == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf, None, "1"])
def test_a_bad_limit_is_a_value_error(clip_norm):
    with pytest.raises(
        ValueError, match="clip_norm: expected a finite number > 0, got"
    ):
        clip([torch.ones(1)], clip_norm)


def test_bad_pairs_are_refused():
    function = clip_gradients_by_global_norm
    with pytest.raises(ValueError, match="empty list"):
        function([])
    with pytest.raises(TypeError, match="iterable of"):
        function(None)
    with pytest.raises(TypeError, match="a tensor or None, got float for 'pair 1'"):
        function([(torch.ones(1), None), (1.0, None)])


@pytest.mark.parametrize("limit", [0.0, 1e-45, 2.5, 1e30, math.inf, math.nan])
@pytest.mark.parametrize("norm", [0.0, 1e-45, 3e-39, 1 / 3, 7.0, 1e38, math.inf])
def test_a_factor_of_plain_numbers_has_the_bits_of_one_of_tensors(norm, limit) -> None:
    number, largest = torch.tensor(norm), torch.tensor(limit)
    expected = largest * torch.minimum(1 / number, 1 / largest)
    factor = clip_scale(number, limit)
    assert factor.dtype == torch.float32
    torch.testing.assert_close(factor, expected, rtol=0, atol=0, equal_nan=True)


def test_the_factor_of_a_norm_that_is_nan_is_nan() -> None:
    assert clip_scale(torch.tensor(math.nan), 2.5).isnan()
