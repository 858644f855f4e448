"""Operations that take several steps at once round as the steps one by one do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from lockstep.pytorch.tensors import foreach, fused
from lockstep.pytorch.tensors.rounding import MANY_THREADS, quotient, rsqrt, sqrt

WIDE = [torch.float32, torch.float64]
DTYPES = [*WIDE, torch.float16, torch.bfloat16]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
SPECIAL = [0.0, -0.0, float("inf"), float("nan"), -1.0, 1e-40, 2.0**-149]


def drawn(seed: int, dtype: torch.dtype) -> list[Tensor]:
    """Return tensors of many magnitudes; vector and scalar code of a kernel run."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(), (7,), (40, 41), (4099,)]
    values = [torch.randn(shape, generator=generator) for shape in shapes]
    powers = [torch.randn(shape, generator=generator) for shape in shapes]
    pairs = zip(values, powers, strict=True)
    return [(value * 10 ** (2 * power)).to(dtype) for value, power in pairs]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for got, right in zip(ours, theirs, strict=True):
        assert got.dtype == right.dtype
        assert torch.equal(got.nan_to_num(nan=7.0), right.nan_to_num(nan=7.0))
        assert torch.equal(got.signbit(), right.signbit())


@dtypes
@pytest.mark.parametrize("factor", [0.1, -1e-4, 1 / 3])
def test_to_add_scaled_tensors_is_to_scale_and_to_add(dtype, factor) -> None:
    number = torch.tensor(factor, dtype=dtype)
    targets, terms = drawn(0, dtype), drawn(1, dtype)
    right = [t + x * number for t, x in zip(targets, terms, strict=True)]
    fused.add_scaled(targets, terms, number)
    assert_same(targets, right)


@dtypes
def test_each_tensor_may_have_a_factor_of_its_own(dtype) -> None:
    targets, terms = drawn(0, dtype), drawn(1, dtype)
    factors = torch.tensor([0.1, 3.3, -1e-3, 0.7], dtype=dtype)
    both = zip(targets, terms, factors, strict=True)
    right = [t + x * factor for t, x, factor in both]
    fused.add_each_scaled(targets, terms, factors)
    assert_same(targets, right)


@dtypes
def test_to_add_quotients_is_to_scale_to_divide_and_to_add(dtype) -> None:
    number = torch.tensor(-1e-3, dtype=dtype)
    targets, terms, divisors = (drawn(seed, dtype) for seed in range(3))
    each = zip(targets, terms, divisors, strict=True)
    right = [t + x * number / divisor for t, x, divisor in each]
    fused.add_quotients(targets, terms, number, divisors)
    assert_same(targets, right)


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16], ids=str)
def test_a_narrow_target_is_rounded_once(narrow) -> None:
    terms, divisors = drawn(1, torch.float32), drawn(2, torch.float32)
    targets = drawn(0, narrow)
    right = [
        (t + x * -0.125 / d).to(narrow)
        for t, x, d in zip(targets, terms, divisors, strict=True)
    ]
    fused.add_quotients(targets, terms, -0.125, divisors)
    assert_same(targets, right)


@dtypes
def test_a_reciprocal_root_is_rounded_as_root_and_as_reciprocal(dtype) -> None:
    squares = [x.abs() for x in drawn(0, dtype)]
    right = [sqrt(square).reciprocal() for square in squares]
    assert_same(fused.reciprocal_roots(squares), right)
    assert_same([rsqrt(square) for square in squares], right)


@pytest.mark.parametrize("threads", [1, MANY_THREADS])
@pytest.mark.parametrize("take", [sqrt, lambda x: foreach.roots([x, x])[1]])
def test_a_root_is_the_float_that_is_nearest(
    monkeypatch, threads: int, take: Callable[[Tensor], Tensor]
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(70_000, generator=generator) * 1e3
    values = torch.cat([values, torch.tensor(SPECIAL)])
    right = torch.from_numpy(
        np.sqrt(np.abs(values.double().numpy())).astype(np.float32)
    ).copysign(values)
    assert_same([take(values)[:-3]], [right[:-3]])
    assert take(values)[-3].isnan() and torch.equal(take(values)[-2:], right[-2:])


@pytest.mark.parametrize("dividend", [0.0, -0.0, 1.0, -2.5, float("nan")])
@pytest.mark.parametrize("divisor", [0.0, -0.0, 3.0, float("inf"), float("nan")])
def test_a_quotient_is_that_of_tensors(dividend: float, divisor: float) -> None:
    right = torch.tensor(dividend, dtype=torch.float64) / divisor
    ours = torch.tensor(quotient(dividend, divisor), dtype=torch.float64)
    assert_same([ours], [right])
