"""Which gradients are finite, found without a look at each element."""

from __future__ import annotations

import pytest
import torch

from lockstep.pytorch.foreach import times
from lockstep.pytorch.norms import FLAG, are_surely_finite, finite_flags

INF, NAN = torch.inf, torch.nan
LARGEST = {d: torch.finfo(d).max for d in (torch.float16, torch.float32, torch.float64)}


@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_one_element_that_is_not_finite_is_found(dtype, value) -> None:
    gradients = [torch.ones(3, 100, dtype=dtype) for _ in range(3)]
    gradients[1][2, 77] = value
    assert finite_flags(gradients) == [True, False, True]


def test_infinities_that_cancel_are_found() -> None:
    assert finite_flags([torch.tensor([INF, -INF])]) == [False]


@pytest.mark.parametrize("dtype", LARGEST)
def test_finite_elements_may_add_up_to_infinity(dtype) -> None:
    large = torch.full((10,), LARGEST[dtype], dtype=dtype)
    assert finite_flags([large, -large]) == [True, True]


@pytest.mark.parametrize("value", [INF, -INF, NAN])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("place", [0, 1])
def test_the_quick_check_finds_an_element_in_any_gradient(place, dtype, value) -> None:
    gradients = [torch.ones(3, 100, dtype=dtype), torch.ones(300, 300, dtype=dtype)]
    assert are_surely_finite(gradients)
    gradients[place][2, 77] = value
    assert not are_surely_finite(gradients)
    gradients[place][1, 5] = -value
    assert not are_surely_finite(gradients)


@pytest.mark.parametrize(
    "gradients",
    [
        [torch.zeros(0)],
        [torch.ones(2).double(), torch.ones(9), torch.ones(2).half()],
        [torch.ones(3, 2).to_sparse(1), torch.full((100,), 6e4).half()],
        [torch.ones(1).expand(3), torch.ones(3, 4).t(), torch.ones(4, 6)[:, ::2]],
    ],
    ids=["empty", "several dtypes", "sparse", "not contiguous"],
)
def test_the_quick_check_takes_any_gradients(gradients) -> None:
    assert are_surely_finite(gradients)
    nan = torch.tensor([NAN])
    assert not are_surely_finite([*gradients, nan])


@pytest.mark.parametrize("size", [FLAG - 1, FLAG, FLAG + 1])
def test_the_quick_check_looks_at_gradients_of_any_size(size: int) -> None:
    gradient = torch.ones(size)
    assert are_surely_finite([gradient])
    gradient[-1] = NAN
    assert not are_surely_finite([gradient])


def test_the_quick_check_changes_no_bit() -> None:
    # The kernel writes each element, also a NaN with a payload.
    bits = torch.tensor([0x7F812345, 0x7F800000, 1, -1, 0x3F800001], dtype=torch.int32)
    gradient = bits.clone().view(torch.float32)
    assert not are_surely_finite([gradient])
    assert torch.equal(gradient.view(torch.int32), bits)
    assert gradient._version == 0


def test_dtypes_empty_and_sparse_gradients_go_together() -> None:
    rows = torch.sparse_coo_tensor(
        [[1, 1]], [[1.0, 2.0], [INF, 0.0]], (4, 2), check_invariants=True
    )
    gradients = [
        torch.zeros(0),
        torch.ones(2, dtype=torch.float64),
        torch.tensor([1.0, NAN]),
        torch.tensor([1.0, 2.0]),
        rows,
        torch.tensor(2.0).half(),
    ]
    assert finite_flags(gradients) == [True, True, False, True, False, True]


def test_rows_that_overflow_when_they_are_summed_are_found() -> None:
    values = [[LARGEST[torch.float32]], [LARGEST[torch.float32]]]
    rows = torch.sparse_coo_tensor([[1, 1]], values, (4, 1), check_invariants=True)
    assert finite_flags([rows]) == [False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_in_half_precision_is_rounded_once(dtype) -> None:
    values = torch.linspace(-2, 2, 101).to(dtype)
    (product,) = times([values], 1 / 3)
    expected = (values.float() * torch.tensor(1 / 3)).to(dtype)
    assert torch.equal(product, expected)
    # The factor rounded to half precision first would give other numbers.
    assert not torch.equal(product, values * torch.tensor(1 / 3).to(dtype))
