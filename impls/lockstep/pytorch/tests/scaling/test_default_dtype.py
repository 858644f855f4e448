"""``torch.set_default_dtype``, with which many models are made, changes no step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.pytorch import (
    AdamOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
)

DEFAULTS = [torch.float16, torch.bfloat16, torch.float64]
# Not representable in half precision: above its range, and not enough digits.
SCALE = 66000.0
FUSED = partial(torch.optim.SGD, lr=0.5, fused=True)


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def trained(wrap, dtype: torch.dtype) -> list[Tensor]:
    """Return a weight after two steps, and the state of the optimizer."""
    weight = Parameter(torch.tensor([1.0, 2.0], dtype=dtype))
    optimizer = wrap([weight])
    for _ in range(2):
        optimizer.zero_grad()
        optimizer.scale_loss((weight.float().square() * 1e-2).sum()).backward()
        optimizer.step()
    return [weight.detach(), optimizer.loss_scale, *optimizer.variables()]


WRAPS = {
    "masters": (
        lambda p: MixedPrecisionOptimizerWrapper(AdamOptimizer(p, 0.5), 8.0),
        torch.float16,
    ),
    "dynamic": (
        lambda p: MixedPrecisionLossScaleOptimizer(AdamOptimizer(p, 0.5), "dynamic"),
        torch.float32,
    ),
    "fused": (
        lambda p: MixedPrecisionLossScaleOptimizer(FUSED(p), SCALE),
        torch.float32,
    ),
    "capturable": (
        lambda p: MixedPrecisionLossScaleOptimizer(FUSED(p), SCALE, capturable=True),
        torch.float32,
    ),
}


@pytest.mark.parametrize("default", DEFAULTS, ids=str)
@pytest.mark.parametrize(("wrap", "dtype"), WRAPS.values(), ids=WRAPS)
def test_results_have_the_same_bits_and_dtypes(wrap, dtype, default) -> None:
    expected = trained(wrap, dtype)
    with default_dtype(default):
        results = trained(wrap, dtype)
    for result, value in zip(results, expected, strict=True):
        assert result.dtype == value.dtype
        assert result.equal(value)
