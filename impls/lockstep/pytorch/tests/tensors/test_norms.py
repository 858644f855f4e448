"""Norms of single tensors, in the dtype that holds their squares."""

from __future__ import annotations

import pytest
import torch

from lockstep.pytorch.tensors.norms import (
    BLOCK,
    magnitudes,
    norm_of_each,
    tensor_norms,
    total_norm,
)


def test_squares_of_float64_need_not_fit_float32() -> None:
    tiny = torch.tensor([3e-30, 4e-30], dtype=torch.float64)
    # The norm is returned in float32, so it is right to its rounding.
    assert norm_of_each([tiny]).item() == pytest.approx(5e-30, rel=1e-7, abs=0)


def test_matrices_of_several_shapes_are_added_up_together() -> None:
    long, wide, high = (torch.ones(shape) for shape in [(BLOCK + 1,), (2, 3), (4, 1)])
    for gradients, squares in (([wide, high], 10), ([long, wide, high], BLOCK + 11)):
        # 1e-6 is what the norm promises.
        assert total_norm(gradients).item() == pytest.approx(squares**0.5, rel=1e-6)


@pytest.mark.parametrize("norms", [total_norm, tensor_norms, norm_of_each, magnitudes])
def test_norms_are_on_the_device_of_the_first_gradient(norms) -> None:
    """Nothing can be copied off the device "meta", so none may be moved to the CPU."""
    gradients = [torch.ones(3, device="meta"), torch.ones(2)]
    assert norms(gradients).device.type == "meta"
