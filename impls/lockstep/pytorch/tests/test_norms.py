"""Norms of single tensors, in the dtype that holds their squares."""

from __future__ import annotations

import pytest
import torch

from lockstep.pytorch.norms import (
    BLOCK,
    SMALL,
    magnitudes,
    norm_of_each,
    total_norm,
)


def test_squares_of_float64_need_not_fit_float32() -> None:
    tiny = torch.tensor([3e-30, 4e-30], dtype=torch.float64)
    # The norm is returned in float32, so it is right to its rounding.
    assert norm_of_each([tiny]).item() == pytest.approx(5e-30, rel=1e-7, abs=0)


@pytest.mark.parametrize(
    "shapes", [[(), ()], [(5,), (3,)], [(2, 3), (4, 1)], [(BLOCK + 1,), (), (2, 3)]]
)
def test_gradients_of_all_shapes_are_added_up_together(shapes) -> None:
    count = sum(torch.Size(shape).numel() for shape in shapes)
    # 1e-6 is what the norm promises.
    norm = total_norm([torch.ones(shape) for shape in shapes]).item()
    assert norm == pytest.approx(count**0.5, rel=1e-6)


@pytest.mark.parametrize("ten", torch.eye(3, dtype=torch.int64).tolist(), ids=str)
def test_small_medium_and_large_gradients_of_any_dtype_all_count(ten) -> None:
    sizes = SMALL - 1, SMALL, BLOCK + 1
    dtypes = torch.float16, torch.float32, torch.float64
    gradients = [
        torch.full((size,), 1.0 + 9 * ten[k], dtype=dtype)
        for k, size in enumerate(sizes)
        for dtype in dtypes
    ]
    squares = sum(gradient.double().square().sum() for gradient in gradients)
    # 1e-6 is what the norm promises; 2e-5 where the elements are all equal.
    assert total_norm(gradients).item() == pytest.approx(squares.sqrt().item(), 2e-5)


@pytest.mark.parametrize("size", [SMALL - 1, BLOCK, BLOCK + 1])
@pytest.mark.parametrize("norm_of", [total_norm, norm_of_each])
def test_norms_of_expanded_gradients_are_as_exact_as_others(norm_of, size) -> None:
    # Autograd returns an expanded gradient for a sum. Some values round worse.
    for value in torch.linspace(0.5, 1.5, 20):
        norm = norm_of([value.expand(size)]).item()
        # 2e-5 is what the norm promises where the elements are all equal.
        assert norm == pytest.approx(value.item() * size**0.5, rel=2e-5)


@pytest.mark.parametrize("norms", [total_norm, norm_of_each, magnitudes])
def test_norms_are_on_the_device_of_the_first_gradient(norms) -> None:
    """Nothing can be copied off the device "meta", so none may be moved to the CPU."""
    gradients = [torch.ones(3, device="meta"), torch.ones(2)]
    assert norms(gradients).device.type == "meta"
