"""A step is skipped if one element is not finite, and only then."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import MixedPrecisionLossScaleOptimizer

SIZES = [1, 3, (1 << 14) - 1, 1 << 14, (1 << 14) + 1, 70000]
"""Elements of small gradients are checked one by one, of large ones the sum."""
dtypes = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)


def stepped(gradients):
    """Return whether a step on these gradients was applied, and the names to blame."""
    named = [(f"w{k}", torch.zeros_like(g.to_dense())) for k, g in enumerate(gradients)]
    named = [(name, Parameter(values)) for name, values in named]
    sgd = torch.optim.SGD(named, lr=0.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 1.0)
    for (_, weight), gradient in zip(named, gradients, strict=True):
        weight.grad = gradient
    optimizer.step()
    return optimizer.last_step.applied, optimizer.last_step.nonfinite


@dtypes
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("size", SIZES)
def test_one_element_that_is_not_finite_skips_the_step(size, value, dtype):
    for place in range(2):
        gradients = [torch.ones(size, dtype=dtype) for _ in range(2)]
        gradients[place][size // 2] = value
        assert stepped(gradients) == (False, (f"w{place}",))


@dtypes
@pytest.mark.parametrize("size", SIZES)
def test_finite_elements_may_add_up_to_infinity(size, dtype):
    largest = torch.full((size,), torch.finfo(dtype).max, dtype=dtype)
    assert stepped([largest, -largest]) == (True, ())


def test_infinities_that_cancel_are_found():
    both = torch.tensor([math.inf, -math.inf])
    assert stepped([both, torch.ones(2)]) == (False, ("w0",))


def test_rows_that_overflow_when_they_are_summed_are_found():
    places, largest = torch.zeros(1, 2, dtype=int), torch.full((2,), 3e38)
    rows = torch.sparse_coo_tensor(places, largest, (4,), check_invariants=True)
    assert stepped([rows, torch.ones(2)]) == (False, ("w0",))


def test_empty_and_strided_gradients_are_finite():
    gradients = [torch.ones(0), torch.ones(3, 0), torch.ones(200, 90).t()]
    assert stepped(gradients) == (True, ())
