"""The multitask wrapper in NumPy: what counts as zero, what it skips and refuses."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.errors import (
    DtypeError,
    MalformedPairsError,
    NoGradientsError,
    NonFiniteNormError,
    NotAnOptimizerError,
    OutOfRangeError,
    ShapeError,
)
from lockstep.interface import Array, Rows
from lockstep.reference import MultitaskOptimizerWrapper, Variable, strict
from lockstep.reference.arrays import (
    densify,
    flush_subnormals,
    is_all_zero,
    sum_duplicates,
)


def array(*values: float, dtype: Any = np.float32) -> Array:
    return np.array(values, dtype)


def rows(indices: list[int], values: list[list[float]], height: int = 4) -> Rows:
    decoded = np.array(values, np.float32).reshape(len(indices), 2)
    return Rows(np.array(indices, np.int64), decoded, (height, 2))


def test_gradients_are_those_of_the_wrapped_optimizer() -> None:
    variable = Variable("w", [1.0], np.float16)
    sgd = reference.GradientDescentOptimizer(0.5)
    masters = reference.MixedPrecisionOptimizerWrapper(sgd, 1024.0)
    loss = lambda: [lambda d: np.float16(2.0**-20) * np.float16(d)]  # noqa: E731
    ((gradient, trained),) = MultitaskOptimizerWrapper(masters).compute_gradients(
        loss, [variable]
    )
    assert trained is masters.master(variable)
    assert gradient.dtype == np.float32 and gradient.item() == 2.0**-20


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


def test_flushing_keeps_every_normal_number() -> None:
    values = array(1e-40, -1e-40, 1.2e-38, -3.0, np.nan, np.inf)
    flushed = flush_subnormals(values)
    np.testing.assert_array_equal(flushed, array(0, 0, 1.2e-38, -3.0, np.nan, np.inf))


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


def test_the_default_leaves_the_wrapped_optimizer_untouched(two_heads: Any) -> None:
    inner = reference.MomentumOptimizer(0.1, 0.9)
    MultitaskOptimizerWrapper(inner)
    inner.apply_gradients([(array(1, 1), two_heads[0])])
    inner.apply_gradients([(array(0, 0), two_heads[0])])
    slot = inner.get_slot(two_heads[0], "momentum")
    assert slot is not None
    assert slot[0] == pytest.approx(0.9)


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


def test_wrappers_nest_by_default_and_not_under_strict(two_heads: Any) -> None:
    inner = MultitaskOptimizerWrapper(reference.AdamOptimizer())
    outer = MultitaskOptimizerWrapper(inner)
    outer.apply_gradients([(array(1, 1), two_heads[0])])
    assert outer.get_slot(two_heads[0], "m") is not None
    with pytest.raises(NotAnOptimizerError):
        strict.MultitaskOptimizerWrapper(inner)


@pytest.mark.parametrize("wrong", [None, 3, "Adam", reference.AdamOptimizer])
def test_only_optimizers_can_be_wrapped(wrong: Any) -> None:
    with pytest.raises(NotAnOptimizerError):
        MultitaskOptimizerWrapper(wrong)


def bad_pairs() -> list[tuple[str, Any, type[Exception]]]:
    good = Variable("w", array(1, 2))
    return [
        ("empty", [], NoGradientsError),
        ("all absent", [(None, good)], NoGradientsError),
        ("no pairs", [good], MalformedPairsError),
        ("swapped", [(good, array(1, 2))], MalformedPairsError),
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


def clip(*gradients: Any, **options: Any) -> tuple[list[Any], Array]:
    pairs = [(gradient, None) for gradient in gradients]
    clipped, norm = reference.clip_gradients_by_global_norm(pairs, **options)
    return [gradient for gradient, _ in clipped], norm


def test_clipping_takes_the_norm_of_half_precision_in_float32() -> None:
    big = array(300, 400, dtype=np.float16)
    (clipped,), norm = clip(big, clip_norm=5.0)
    assert norm.dtype == np.float32
    assert norm == 500
    assert clipped.dtype == np.float16
    np.testing.assert_allclose(clipped, [3, 4], rtol=1e-3)  # one rounding in float16


def test_clipping_sums_duplicate_rows_in_the_norm() -> None:
    (clipped,), norm = clip(rows([1, 1], [[3, 0], [0, 4]]), clip_norm=1.0)
    assert norm == 5
    np.testing.assert_allclose(clipped.values, [[0.6, 0], [0, 0.8]], rtol=1e-6)


def test_clipping_mixes_dtypes_by_default() -> None:
    (half, single), norm = clip(array(3, dtype=np.float16), array(4), clip_norm=1.0)
    assert norm == 5
    assert (half.dtype, single.dtype) == (np.float16, np.float32)


def test_a_norm_that_is_not_finite_can_be_an_error() -> None:
    (clipped,), _ = clip(array(np.inf, 1))
    assert np.isnan(clipped).all()
    with pytest.raises(NonFiniteNormError):
        clip(array(np.inf, 1), error_if_nonfinite=True)


def test_a_limit_out_of_range_is_refused_before_anything_else() -> None:
    with pytest.raises(OutOfRangeError):
        clip(array(1, 2), clip_norm=0.0)


def test_clipping_keeps_subnormal_numbers_below_the_limit() -> None:
    small = array(1e-40, 3)
    (clipped,), _ = clip(small, clip_norm=8.0)
    assert clipped.tolist() == small.tolist()


def test_shared_powers_advance_only_if_something_was_updated(two_heads: Any) -> None:
    counter = Variable("step", 0, np.int64)
    for names, expected in ((reference, 0.9), (strict, 0.81)):
        adam = reference.AdamOptimizer()
        wrapper = names.MultitaskOptimizerWrapper(adam)
        wrapper.apply_gradients([(array(0, 0), two_heads[0])], counter)
        assert float(adam.shared["beta1_power"]) == pytest.approx(expected)
    assert counter.value == 2
