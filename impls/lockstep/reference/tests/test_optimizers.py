"""The optimizers in NumPy: half precision, fresh arrays, FTRL."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.interface import Array, Rows
from lockstep.reference import Variable, strict

STEPS = 12
MAKES = {
    "GradientDescent": lambda names: names.GradientDescentOptimizer(1e-3),
    "Momentum": lambda names: names.MomentumOptimizer(1e-3, 0.999),
    "Adam": lambda names: names.AdamOptimizer(1e-3),
    "AdamW": lambda names: names.AdamWOptimizer(0.01, 1e-3),
    "Adagrad": lambda names: names.AdagradOptimizer(1e-3),
    "RMSProp": lambda names: names.RMSPropOptimizer(1e-3, momentum=0.5, centered=True),
    "Ftrl": lambda names: names.FtrlOptimizer(1e-3),
    "NovoGrad": lambda names: names.NovoGrad(1e-3, weight_decay=0.01),
}
rules = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)


@pytest.fixture(params=["float16", "bfloat16"])
def dtype(request: Any) -> np.dtype[Any]:
    """NumPy's own half precision, and that of ``ml_dtypes``, where there is one."""
    if request.param == "float16":
        return np.dtype(np.float16)
    types = pytest.importorskip("ml_dtypes", reason="bfloat16 comes with TensorFlow")
    return np.dtype(types.bfloat16)


def gradients(scale: float, dtype: np.dtype[Any], sparse: bool) -> list[Any]:
    """Return the gradients of all steps, dense, or rows 1 (twice) and 4 of six."""
    random = np.random.default_rng(5)
    drawn: list[Array] = [
        (random.normal(size=(6, 3)) * scale).astype(dtype) for _ in range(STEPS)
    ]
    if not sparse:
        return drawn
    return [Rows(np.array([1, 4, 1]), values[:3], (6, 3)) for values in drawn]


@rules
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 300.0])
def test_a_rule_in_half_precision_is_that_of_float32_rounded_once_a_step(
    make: Any, dtype: np.dtype[Any], scale: float, sparse: bool
) -> None:
    start = np.random.default_rng(3).normal(size=(6, 3)).astype(dtype)
    half, wide = Variable("half", start), Variable("wide", start, np.float32)
    ours, same = make(reference), make(reference)
    for gradient in gradients(scale, dtype, sparse):
        ours.apply_gradients([(gradient, half)])
        same.apply_gradients([(as_float32(gradient), wide)])
    # A step rounds a weight by half an ULP at most, and decays only shrink an error;
    # one ULP a step, since a power of two in between doubles the spacing.
    precision = 2.0**-10 if dtype == np.float16 else 2.0**-7
    spacing = max(np.abs(wide.value).max(), 2.0**-14) * precision
    assert half.dtype == dtype
    assert np.abs(half.value.astype(np.float32) - wide.value).max() <= STEPS * spacing
    assert {slot.dtype for slot in ours.slots[half].values()} <= {np.dtype(np.float32)}


def as_float32(gradient: Any) -> Any:
    """Return a gradient in float32."""
    if isinstance(gradient, Rows):
        return gradient._replace(values=gradient.values.astype(np.float32))
    return gradient.astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@rules
def test_arrays_from_before_a_step_stay_as_they_were(
    make: Any, sparse: bool, dtype: type
) -> None:
    w = Variable("w", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype)
    values: Array = np.asarray([[0.5, 1.0], [2.0, 0.25]], dtype)
    indices, dense = np.asarray([2, 0]), np.asarray(w.value / 4)
    gradient = Rows(indices, values, w.shape) if sparse else dense
    optimizer = make(reference)
    held = [indices, values, dense]
    for _ in range(3):
        held += [w.value, *optimizer.slots.get(w, {}).values()]
        before = deepcopy(held)
        optimizer.apply_gradients([(gradient, w)])
        for array, earlier in zip(held, before, strict=True):
            np.testing.assert_array_equal(array, earlier)
        for new in (w.value, *optimizer.slots[w].values()):
            assert not any(np.shares_memory(new, given) for given in held)


@pytest.mark.parametrize(("names", "dense"), [(reference, np.nan), (strict, 0.0)])
def test_ftrl_shows_a_nan_but_for_strict_after_a_dense_gradient(
    names: Any, dense: float
) -> None:
    nan = Rows(np.array([0]), np.float32([np.nan]), (2,))
    for gradient, expected in (np.float32([np.nan, 1]), dense), (nan, np.nan):
        w = Variable("w", [1.0, 1.0], np.float32)
        names.FtrlOptimizer(0.25).apply_gradients([(gradient, w)])
        np.testing.assert_equal(w.value[0], np.float32(expected))
        assert np.isfinite(w.value[1])


ZEROS = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize("module", [reference, strict], ids=["default", "strict"])
@pytest.mark.parametrize("gradient", [ZEROS, Rows(np.array([0]), ZEROS, (1, 2))])
def test_a_weight_that_was_never_pulled_is_zero_and_not_nan(
    module: Any, gradient: Any
) -> None:
    w = Variable("w", np.ones((1, 2), np.float32))
    opt = module.FtrlOptimizer(0.1, initial_accumulator_value=0.0)
    opt.apply_gradients([(gradient, w)])
    assert w.value.tolist() == [[0, 0]]


def test_a_power_other_than_the_root_is_taken_as_it_is() -> None:
    w = Variable("w", np.ones(1, np.float32))
    opt = reference.FtrlOptimizer(1.0, -1.5, initial_accumulator_value=0.0)
    opt.apply_gradients([(np.float32([2]), w)])
    # G - n^1.5 w = 2 - 8, and w = 6 / n^1.5.
    assert w.value.tolist() == [0.75]


def test_a_square_that_overflows_is_forgotten_by_the_next_step() -> None:
    w = Variable("w", [1.0], np.float32)
    optimizer = reference.NovoGrad(0.5, beta2=0.5)
    found = []
    for gradient in (2.0, 1e30, 3.0, 1.0):
        optimizer.apply_gradients([(np.float32([gradient]), w)])
        slot = optimizer.get_slot(w, "second_moment")
        assert slot is not None
        found.append(float(slot))
    assert found == [4.0, np.inf, 9.0, 5.0]
