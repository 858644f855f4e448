"""Which gradients count as all zero."""

from __future__ import annotations

import pytest
import torch

from lockstep.pytorch.tensors.zero_test import (
    GROWTH,
    SMALL,
    all_zero_flags,
    is_all_zero,
    largest_vanishing,
)

TINY = 1e-45  # the smallest float32 subnormal


def last_of(count: int, value: float, dtype: torch.dtype = torch.float32):
    """Return ``count`` zeros but for the last element."""
    tensor = torch.zeros(count, dtype=dtype)
    tensor[-1] = value
    return tensor


def rows(indices: list[int], values: list[list[float]], size: int = 4):
    """Return a sparse gradient of shape [size, 2], as it comes out of an embedding."""
    found = torch.tensor(values, dtype=torch.float32).reshape(len(indices), 2)
    index = torch.tensor([indices], dtype=torch.int64)
    return torch.sparse_coo_tensor(index, found, (size, 2), check_invariants=True)


ZERO = {
    "zeros": torch.zeros(3, 2),
    "minus zero": torch.tensor([-0.0, 0.0]),
    "scalar zero": torch.zeros(()),
    "empty": torch.zeros(0, 3),
    "large": torch.zeros(5 * SMALL + 1),
    "float16": torch.zeros(5, dtype=torch.float16),
    "bfloat16": torch.zeros(5, dtype=torch.bfloat16),
    "float64": torch.zeros(5, dtype=torch.float64),
    "complex": torch.zeros(5, dtype=torch.complex64),
    "lazy conjugate": torch.zeros(5, dtype=torch.complex64).conj(),
    "not contiguous": torch.zeros(4, 6)[:, ::2],
    "no rows": rows([], []),
    "rows of zeros": rows([1, 3], [[0.0, -0.0], [0.0, 0.0]]),
    "rows that cancel": rows([2, 0, 2], [[1.5, -2.0], [0.0, 0.0], [-1.5, 2.0]]),
}
NONZERO = {
    "one": torch.tensor([0.0, 1.0]),
    "first element": torch.tensor([1.0, 0.0]),
    "scalar": torch.tensor(2.0),
    "nan": torch.tensor([0.0, torch.nan]),
    "infinity": torch.tensor([0.0, -torch.inf]),
    "negative": torch.tensor([0.0, -1.0]),
    "the end of a large one": last_of(20 * SMALL + 3, -1.0),
    "underflows when squared": last_of(5, 1e-30),
    "float16 subnormal": last_of(5, 6e-8, torch.float16),
    "bfloat16": last_of(5, 1.0, torch.bfloat16),
    "float64": last_of(5, 1e-300, torch.float64),
    "imaginary": last_of(5, 1j, torch.complex64),
    "not contiguous": torch.eye(4)[1:, :3],
    "transposed": torch.tensor([[0.0, 1.0], [0.0, 0.0]]).t(),
    "expanded": torch.tensor([[0.0], [1.0]]).expand(2, 3),
    "rows": rows([1], [[0.0, 1.0]]),
    "rows that do not quite cancel": rows([2, 2], [[1.0, 1.0], [-1.0, 1.0]]),
}
SUBNORMAL = {
    "float32": torch.tensor([0.0, TINY]),
    "float32, first": torch.tensor([TINY, 0.0]),
    "rows": rows([1], [[TINY, 0.0]]),
    "bfloat16": last_of(5, 1e-40, torch.bfloat16),
}


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (SMALL + 1,)])
def test_gradients_of_one_shape_are_told_apart(shape):
    zero, one = torch.zeros(shape), torch.ones(shape)
    last = last_of(zero.numel(), 1e-300, torch.float64).reshape(shape)
    gradients = [zero, one, last, zero.half(), one]
    if one.dim() == 2:
        gradients[-1] = one.mT.contiguous().mT
    expected = [True, False, False, True, False]
    assert all_zero_flags(gradients) == expected
    assert all_zero_flags([*gradients, torch.ones(7)]) == [*expected, False]


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("gradient", ZERO.values(), ids=ZERO)
def test_it_is_all_zero(gradient, flush):
    if not (flush and gradient.is_complex()):
        assert is_all_zero(gradient, flush)
    assert all_zero_flags([gradient]) == [True]


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("gradient", NONZERO.values(), ids=NONZERO)
def test_it_has_a_nonzero_element(gradient, flush):
    if not (flush and (gradient.is_complex() or gradient.dtype is torch.float64)):
        assert not is_all_zero(gradient, flush)
    assert all_zero_flags([gradient]) == [False]


@pytest.mark.parametrize("gradient", SUBNORMAL.values(), ids=SUBNORMAL)
def test_a_subnormal_counts_as_zero_only_when_flushed(gradient):
    assert all_zero_flags([gradient], flush=True) == [True]
    assert all_zero_flags([gradient], flush=False) == [False]


@pytest.mark.parametrize("seed", range(4))
def test_in_a_batch_each_gradient_gets_its_own_answer(seed):
    table = [(g, True) for g in ZERO.values()] + [(g, False) for g in NONZERO.values()]
    table += table  # so that several share a shape
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    gradients, expected = zip(*(table[k] for k in order), strict=True)
    assert all_zero_flags(gradients) == list(expected)


def test_no_gradients_no_answers():
    assert all_zero_flags([]) == []


@pytest.mark.parametrize("position", [0, 1, SMALL - 1, SMALL, 17 * SMALL, -1])
def test_one_nonzero_element_is_found_wherever_it_is(position):
    gradient = torch.zeros(40 * SMALL)
    gradient[position] = TINY
    assert all_zero_flags([gradient, gradient]) == [False, False]


@pytest.mark.parametrize("value", [-0.0, float("nan"), 2.0**-149, -1.0])
@pytest.mark.parametrize("stride", [1, 2])
def test_beyond_the_first_elements_only_zeros_of_both_signs_are_zero(value, stride):
    gradient = torch.zeros(3 * GROWTH * SMALL * stride)[::stride]
    gradient[-1] = value
    assert is_all_zero(gradient) == (value == 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_smallest_normal_number_is_not_flushed(dtype: torch.dtype, sign: int):
    smallest = sign * torch.finfo(dtype).smallest_normal
    assert not is_all_zero(last_of(3, smallest, dtype), flush=True)
    below = torch.nextafter(
        torch.tensor(smallest, dtype=dtype), torch.zeros((), dtype=dtype)
    )
    assert is_all_zero(last_of(3, below.item(), dtype), flush=True)


@pytest.mark.parametrize("divisor", [0.75, 1.0, 2.0, 3.0, 1024.0, 2.0**24 + 2, 1e30])
@pytest.mark.parametrize("count", [1, 3, SMALL + 1])
def test_what_a_division_rounds_to_zero_counts_as_zero(divisor, count):
    """Also the neighbors of the largest such number, in float32."""
    divisor = torch.tensor(divisor).item()
    largest = torch.tensor(largest_vanishing(divisor))
    assert largest.item() == largest_vanishing(divisor)
    above = torch.nextafter(largest, torch.tensor(torch.inf))
    for value in (largest, above):
        vanishes = (value / divisor).item() == 0
        assert vanishes == (value is largest)
        for sign in (1, -1):
            gradient = last_of(count, sign * value.item())
            flags = all_zero_flags([gradient, gradient], limit=largest.item())
            assert flags == [vanishes] * 2
