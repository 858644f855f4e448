"""Row clipping in the reference where no recorded case speaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.errors import LockstepError
from lockstep.interface import Array, Rows
from lockstep.reference import (
    MultitaskOptimizerWrapper,
    Variable,
    VariableClippingOptimizer,
    strict,
)
from lockstep.reference.variable_clipping import (
    MARGINS,
    clip_rows,
    excess,
    strict_norms,
)

both = pytest.mark.parametrize("strictly", [False, True], ids=["default", "strict"])


def clipping(w: Variable, dims: Any, limit: float = 1.0, **options: Any) -> Any:
    sgd = reference.GradientDescentOptimizer(1.0)
    return VariableClippingOptimizer(sgd, {w: dims}, limit, **options)


def stepped(values: Any, dims: Any, gradient: Any = None, **options: Any) -> Array:
    """Return what one step on a gradient, zero if None, makes of ``values``."""
    w = Variable("w", values, options.pop("dtype", np.float32))
    gradient = np.zeros_like(w.value) if gradient is None else gradient
    clipping(w, dims, **options).apply_gradients([(gradient, w)])
    return w.value


def rows(*indices: int, height: int = 4) -> Rows:
    """Return a sparse gradient of zeros that names rows."""
    values = np.zeros((len(indices), 2), np.float32)
    return Rows(np.array(indices, np.int64), values, (height, 2))


def shapes_and_axes() -> list[tuple[tuple[int, ...], list[int]]]:
    return [
        ((40, 3), [1]),
        ((3, 40), [0]),
        ((7, 17), [0, 1]),
        ((4, 3, 5), [0, 2]),
        ((4, 3, 5), [1]),
        ((6,), []),
        ((), []),
    ]


@pytest.mark.parametrize(("shape", "axes"), shapes_and_axes(), ids=str)
def test_the_norms_are_those_of_numpy(shape: tuple[int, ...], axes: list[int]) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = np.sqrt(
        np.sum(np.square(values, dtype=float), tuple(axes), keepdims=True)
    )
    np.testing.assert_allclose(strict_norms(values, axes), expected, rtol=1e-6)


@pytest.mark.parametrize(("shape", "axes"), shapes_and_axes(), ids=str)
def test_the_default_is_strict_above_the_norm_and_nothing_below(
    shape: tuple[int, ...], axes: list[int]
) -> None:
    values = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    limit = float(np.median(strict_norms(values, axes)))
    clipped, too_large = clip_rows(values, axes, limit)
    original = values - excess(values, axes, limit)
    # The margin is one machine epsilon, and both round two or three times besides.
    expected = np.where(too_large, original, values)
    np.testing.assert_allclose(clipped, expected, rtol=5e-7)
    np.testing.assert_array_equal(np.where(too_large, 0, clipped - values), 0)
    assert too_large.shape == strict_norms(values, axes).shape


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("length", [0.31, 1.0, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("width", [1, 2, 4, 64])
def test_a_clipped_row_is_at_the_limit_or_just_below_and_stays(
    dtype: Any, length: float, width: int
) -> None:
    values = np.random.default_rng(7).normal(size=(500, width))
    values *= length / np.linalg.norm(values, axis=1, keepdims=True)
    limit = 0.3
    clipped, too_large = clip_rows(values.astype(dtype), [1], limit)
    norms = np.linalg.norm(clipped.astype(np.float64), axis=1)
    held = limit if dtype == np.float64 else float(np.float32(limit))
    assert too_large.all()
    assert norms.max() <= held
    # Twice the margin: rounding takes as much again, at the most.
    assert norms.min() >= held * (1 - 2 * MARGINS[np.dtype(dtype).name])
    again, still = clip_rows(clipped, [1], limit)
    np.testing.assert_array_equal(again, clipped)
    assert not still.any()


def test_half_precision_is_clipped_by_a_norm_in_single_precision() -> None:
    values = [[300, 400], [0.25, 0.5]]
    clipped = stepped(values, [1], limit=2.5, dtype=np.float16)
    assert clipped.dtype == np.float16
    assert clipped.tolist() == [[1.5, 2.0], [0.25, 0.5]]
    original = stepped(values, [1], limit=2.5, dtype=np.float16, strict=True)
    assert original.tolist()[0] == [0.0, 0.0]


def test_a_row_named_three_times_is_corrected_once_and_under_strict_three_times() -> (
    None
):
    table = [[0.0, 0.0], [0.0, 0.0], [6.0, 8.0], [0.0, 0.0]]
    once = stepped(table, [1], rows(2, 0, 2, 2))
    thrice = stepped(table, [1], rows(2, 0, 2, 2), strict=True)
    np.testing.assert_allclose(once[2], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_allclose(thrice[2], [6 - 3 * 5.4, 8 - 3 * 7.2], rtol=1e-6)


@both
def test_rows_that_only_the_base_optimizer_moves_are_not_clipped(
    strictly: bool,
) -> None:
    bare, ours = (Variable("w", np.full((4, 2), 3.0), np.float32) for _ in range(2))
    adam, inner = reference.AdamOptimizer(0.5), reference.AdamOptimizer(0.5)
    wrapper = VariableClippingOptimizer(inner, {ours: [1]}, 1.0, strict=strictly)
    for named in ((0, 1, 2, 3), (1, 2)):
        gradient = rows(*named)._replace(values=np.ones((len(named), 2), np.float32))
        adam.apply_gradients([(gradient, bare)])
        if len(named) == 4:
            inner.apply_gradients([(gradient, ours)])
        else:
            wrapper.apply_gradients([(gradient, ours)])
    assert bare.value[0, 0] < 2.5  # moved twice
    np.testing.assert_array_equal(ours.value[[0, 3]], bare.value[[0, 3]])
    np.testing.assert_allclose(np.linalg.norm(ours.value[1:3], axis=1), 1, rtol=1e-6)
    assert wrapper.last_step.reason == (
        "every gradient was present; 2 of 2 rows clipped"
    )


def test_a_negative_axis_that_means_0_is_resolved_and_under_strict_is_not() -> None:
    table = [[3.0, 0.1], [4.0, 0.2], [0.0, 0.0], [0.0, 0.0]]
    whole = stepped(table, [-2], rows(1))
    np.testing.assert_allclose(whole[:2, 0], [0.6, 0.8], rtol=1e-6)
    gathered = stepped(table, [-2], rows(1), strict=True)
    np.testing.assert_allclose(gathered[:2, 0], [3.0, 1.0], rtol=1e-6)


def test_an_absent_gradient_is_not_clipped_and_a_zero_one_is() -> None:
    absent, zero = (Variable(name, [3.0, 4.0], np.float32) for name in "az")
    sgd = reference.GradientDescentOptimizer(1.0)
    wrapper = VariableClippingOptimizer(sgd, {absent: [0], zero: [0]}, 1.0)
    wrapper.apply_gradients([(None, absent), (np.zeros(2, np.float32), zero)])
    assert absent.value.tolist() == [3.0, 4.0]
    np.testing.assert_allclose(zero.value, [0.6, 0.8], rtol=1e-6)
    assert wrapper.last_step is not None
    assert wrapper.last_step.skipped == ("a",)


def test_inside_multitask_a_zero_gradient_does_not_clip_and_outside_it_does() -> None:
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    for outside, expected in ((True, [0.6, 0.8]), (False, [3.0, 4.0])):
        w, other = (Variable(name, [3.0, 4.0], np.float32) for name in "wo")
        momentum = reference.MomentumOptimizer(1.0, 0.9)
        wrapper: Any
        if outside:
            multitask = MultitaskOptimizerWrapper(momentum)
            wrapper = VariableClippingOptimizer(multitask, {w: [0]}, 1.0)
        else:
            clipped = VariableClippingOptimizer(momentum, {w: [0]}, 1.0)
            wrapper = MultitaskOptimizerWrapper(clipped)
        wrapper.apply_gradients([(zeros, w), (ones, other)])
        np.testing.assert_allclose(w.value, expected, rtol=1e-6)
        assert momentum.get_slot(w, "momentum") is None
        assert wrapper.last_step.skipped == ("w",)


def test_one_shot_iterators_are_clipped_and_not_under_strict() -> None:
    for strictly, expected in ((False, [0.6, 0.8]), (True, [3.0, 4.0])):
        w = Variable("w", [3.0, 4.0], np.float32)
        wrapper = clipping(w, [0], strict=strictly)
        wrapper.apply_gradients(iter([(np.zeros(2, np.float32), w)]))
        np.testing.assert_allclose(w.value, expected, rtol=1e-6)


W = Variable("w", np.full((2, 3), 7.0), np.float32)
BAD: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "no optimizer": ({"opt": 3}, TypeError),
    "no mapping": ({"dims": [W]}, TypeError),
    "an integer": ({"dims": {W: 1}}, TypeError),
    "an axis too far": ({"dims": {W: [2]}}, ValueError),
    "an axis twice": ({"dims": {W: [0, -2]}}, ValueError),
    **{
        f"max_norm {limit}": ({"max_norm": limit}, ValueError)
        for limit in (0.0, -1.0, np.nan, np.inf, None)
    },
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name: str) -> None:
    changes, error = BAD[name]
    given: dict[str, Any] = {"dims": {W: [1]}, "max_norm": 1.0, **changes}
    given.setdefault("opt", reference.GradientDescentOptimizer(1.0))
    opt, dims, limit = (given.pop(name) for name in ("opt", "dims", "max_norm"))
    with pytest.raises(error) as caught:
        VariableClippingOptimizer(opt, dims, limit, **given)
    assert isinstance(caught.value, LockstepError)


def test_strict_checks_the_axes_before_anything_is_applied() -> None:
    sgd = reference.GradientDescentOptimizer(1.0)
    wrapper = strict.VariableClippingOptimizer(sgd, {W: [2]}, 1.0)
    with pytest.raises(ValueError):
        wrapper.apply_gradients([(np.ones((2, 3), np.float32), W)])
    assert (W.value == 7).all()
