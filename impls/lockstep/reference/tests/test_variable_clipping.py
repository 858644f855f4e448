"""Row clipping in the reference where no recorded case speaks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.errors import LockstepError
from lockstep.interface import Rows
from lockstep.reference import (
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


W = Variable("w", np.full((2, 3), 7.0), np.float32)
BAD: dict[str, tuple[dict[str, Any], type[Exception]]] = {
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
