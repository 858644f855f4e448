"""The multitask wrapper in NumPy: what counts as zero, what it skips and refuses."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.errors import (
    DtypeError,
    NoGradientsError,
    ShapeError,
)
from lockstep.interface import Array, Rows
from lockstep.reference import MultitaskOptimizerWrapper, Variable, strict
from lockstep.reference.arrays import (
    densify,
    is_all_zero,
    sum_duplicates,
)


def array(*values: float, dtype: Any = np.float32) -> Array:
    return np.array(values, dtype)


def rows(indices: list[int], values: list[list[float]], height: int = 4) -> Rows:
    decoded = np.array(values, np.float32).reshape(len(indices), 2)
    return Rows(np.array(indices, np.int64), decoded, (height, 2))


ZERO_TEST = [
    ("zeros", array(0, 0), True, True),
    ("minus zero", array(-0.0, 0), True, True),
    ("NaN", array(np.nan, 0), False, False),
    ("infinity", array(np.inf, 0), False, False),
    ("float32 subnormal", array(1e-40, 0), False, True),
    ("smallest normal", array(2.0**-126, 0), False, False),
    ("smallest normal of float64", array(2.0**-1022, dtype=np.float64), False, False),
    ("largest subnormal", array(2.0**-126 * (1 - 2.0**-23)), False, True),
    ("float16 subnormal", array(6e-8, 0, dtype=np.float16), False, False),
    ("float64 subnormal", array(1e-310, 0, dtype=np.float64), False, True),
    ("scalar", np.float32(0).reshape(()), True, True),
    ("no element", array(), True, True),
    ("no rows", rows([], []), True, True),
    ("rows that cancel", rows([1, 1], [[1, 2], [-1, -2]]), True, True),
    ("rows of zeros", rows([0, 3], [[0, 0], [0, 0]]), True, True),
    ("rows that do not cancel", rows([1, 2], [[1, 2], [-1, -2]]), False, False),
]


@pytest.mark.parametrize(
    ("gradient", "exact", "flushed"),
    [row[1:] for row in ZERO_TEST],
    ids=[row[0] for row in ZERO_TEST],
)
def test_what_counts_as_zero(gradient: Any, exact: bool, flushed: bool) -> None:
    assert is_all_zero(gradient) is exact
    assert is_all_zero(gradient, flush=True) is flushed


def test_duplicates_are_summed_in_their_order_and_sorted() -> None:
    gradient = rows([2, 0, 2, 2], [[1, 1], [5, 6], [2, 2], [4, 4]])
    summed = sum_duplicates(gradient)
    assert summed.indices.tolist() == [0, 2]
    assert summed.values.tolist() == [[5, 6], [7, 7]]
    assert densify(gradient, (4, 2)).tolist() == [[5, 6], [0, 0], [7, 7], [0, 0]]


@pytest.fixture
def two_heads() -> tuple[Variable, Variable]:
    return Variable("a", array(1, 2)), Variable("b", array(3, 4))


OPTIMIZERS = {
    "momentum": lambda: reference.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: reference.AdamOptimizer(0.1),
    "rmsprop": lambda: reference.RMSPropOptimizer(0.1, momentum=0.5),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_head_without_a_gradient_stays_as_it_is(make: Any, two_heads: Any) -> None:
    a, b = two_heads
    wrapper = MultitaskOptimizerWrapper(make())
    ones, zeros = array(1, -1), array(0, 0)
    wrapper.apply_gradients([(ones, a), (ones, b)])
    names = list(wrapper.inner_optimizer.slots[b])
    before = copy.deepcopy((b.value, [wrapper.get_slot(b, name) for name in names]))
    wrapper.apply_gradients([(ones, a), (zeros, b)])
    np.testing.assert_equal((b.value, [wrapper.get_slot(b, n) for n in names]), before)
    assert wrapper.last_step == (True, "of 2 gradients 1 all zero", ("b",))


def test_strict_gradient_descent_subtracts_rows_that_cancel_one_by_one() -> None:
    def table() -> Variable:
        return Variable("table", np.full((4, 2), 1e8, np.float32))

    # 1e8 - 3 rounds to 1e8 and 1e8 + 5 to 1e8 + 8: one by one the rows do not cancel.
    gradient = rows([0, 0, 0], [[3, 3], [-5, -5], [2, 2]])
    original, default = table(), table()
    make = reference.GradientDescentOptimizer
    strict.MultitaskOptimizerWrapper(make(1.0)).apply_gradients([(gradient, original)])
    MultitaskOptimizerWrapper(make(1.0)).apply_gradients([(gradient, default)])
    assert original.value[0, 0] == np.float32(1e8) + 8
    assert default.value[0, 0] == np.float32(1e8)


def bad_pairs() -> list[tuple[str, Any, type[Exception]]]:
    good = Variable("w", array(1, 2))
    return [
        ("empty", [], NoGradientsError),
        ("all absent", [(None, good)], NoGradientsError),
        ("shape", [(array(1, 2, 3), good)], ShapeError),
        ("dtype", [(array(1, 2, dtype=np.float64), good)], DtypeError),
    ]


@pytest.mark.parametrize(
    ("pairs", "error"),
    [row[1:] for row in bad_pairs()],
    ids=[row[0] for row in bad_pairs()],
)
def test_bad_pairs_change_nothing(pairs: Any, error: type[Exception]) -> None:
    first = Variable("first", array(7, 7))
    counter = Variable("step", 0, np.int64)
    given = [(array(1, 1), first), *pairs] if error not in {NoGradientsError} else pairs
    wrapper = MultitaskOptimizerWrapper(reference.MomentumOptimizer(0.1, 0.9))
    with pytest.raises(error):
        wrapper.apply_gradients(given, counter)
    assert first.value.tolist() == [7, 7]
    assert counter.value == 0
    assert wrapper.get_slot(first, "momentum") is None
