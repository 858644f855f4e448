"""Norms of single tensors, in the dtype that holds their squares."""

from __future__ import annotations

import pytest
import torch

from lockstep.pytorch.tensors.norms import norm_of_each


def test_squares_of_float64_need_not_fit_float32() -> None:
    tiny = torch.tensor([3e-30, 4e-30], dtype=torch.float64)
    # The norm is returned in float32, so it is right to its rounding.
    assert norm_of_each([tiny]).item() == pytest.approx(5e-30, rel=1e-7)
