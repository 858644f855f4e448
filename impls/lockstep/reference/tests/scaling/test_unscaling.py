"""Scaling and unscaling by hand, reports that are never old, and counts of skips."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep import reference as ls
from lockstep.errors import DtypeError
from lockstep.interface import NO_GRADIENTS, NO_STEP, Rows
from lockstep.reference import strict
from lockstep.scalers import ScaledStepReport

WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "scale": lambda scale: ls.MixedPrecisionLossScaleOptimizer(
        ls.GradientDescentOptimizer(0.5), scale
    ),
    "masters": lambda scale: ls.MixedPrecisionOptimizerWrapper(
        ls.GradientDescentOptimizer(0.5), scale
    ),
}
wrappers = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
dtypes = pytest.mark.parametrize("dtype", [np.float16, np.float32])


def weight(dtype: Any = np.float32) -> ls.Variable:
    return ls.Variable("w", [1.0, 1.0], dtype)


def gradient(*values: float, dtype: Any = np.float32) -> Any:
    return np.array(values, dtype)


@wrappers
@dtypes
def test_gradients_of_a_scaled_loss_are_divided_once(wrap: Any, dtype: Any) -> None:
    w, opt = weight(dtype), wrap(ls.DynamicLossScale(1024.0))
    (scaled,) = opt.scale_loss(lambda: [gradient(1, 2, dtype=dtype)])()
    assert scaled.tolist() == [1024, 2048] and scaled.dtype == dtype
    (unscaled,) = opt.unscale_gradients([scaled])
    assert unscaled.tolist() == [1, 2] and unscaled.dtype == np.float32
    opt.apply_gradients([(unscaled, w)])
    assert w.value.tolist() == [0.5, 0.0] and w.dtype == dtype
    (scaled,) = opt.scale_loss(lambda: [gradient(1, 2, dtype=dtype)])()
    opt.apply_gradients([(scaled, w)])
    assert w.value.tolist() == [0.0, -1.0]
    opt.apply_gradients([(gradient(1, 2, dtype=dtype), w)])
    assert w.value.tolist() == [-0.5, -2.0]


@wrappers
def test_integers_are_not_unscaled(wrap: Any) -> None:
    opt = wrap(8.0)
    opt.scale_loss(1.0)
    whole = np.ones((1, 2), np.int32)
    for integers in (whole, Rows(np.array([0]), whole, (1, 2))):
        with pytest.raises(DtypeError):
            opt.unscale_gradients([integers])


@wrappers
def test_small_gradients_in_half_precision_come_back_as_they_were(wrap: Any) -> None:
    w, opt = weight(np.float16), wrap(2.0**15)
    opt.scale_loss(1.0)
    scaled = gradient(2.0**-11, 2.0**-11, dtype=np.float16)
    (unscaled,) = opt.unscale_gradients([scaled])
    assert unscaled.tolist() == [2.0**-26] * 2  # float16 rounds this to 0
    opt.apply_gradients([(unscaled, w)])
    assert opt.last_step.applied


@wrappers
def test_absent_and_sparse_gradients_stay_what_they_are(wrap: Any) -> None:
    opt = wrap(4.0)
    opt.scale_loss(1.0)
    rows = Rows(np.array([1]), gradient(8.0), (2,))
    absent, sparse = opt.unscale_gradients([None, rows])
    assert absent is None
    assert sparse.indices.tolist() == [1] and sparse.values.tolist() == [2.0]
    assert opt.scale_loss(np.float32(3)) == 12


@wrappers
def test_a_second_unscaling_before_the_step_is_refused(wrap: Any) -> None:
    w, opt = weight(), wrap(4.0)
    scaled = opt.scale_loss(lambda: [gradient(4, 4)])()
    unscaled = opt.unscale_gradients(scaled)
    with pytest.raises(RuntimeError):
        opt.unscale_gradients(unscaled)
    opt.apply_gradients([(unscaled[0], w)])
    assert w.value.tolist() == [-1.0, -1.0]
    opt.unscale_gradients(opt.scale_loss(lambda: [gradient(4, 4)])())


@wrappers
@pytest.mark.parametrize("wrong", [gradient(1, 2), 3, None])
def test_what_is_no_list_of_gradients_is_refused(wrap: Any, wrong: Any) -> None:
    with pytest.raises(TypeError):
        wrap(4.0).unscale_gradients(wrong)


@wrappers
def test_skips_are_counted_and_travel(wrap: Any) -> None:
    w, opt = weight(), wrap(ls.DynamicLossScale(8.0))
    counts = []
    for value in (1.0, np.inf, np.nan, 1.0, np.inf):
        opt.apply_gradients([(gradient(value, 1), w)])
        counts.append((opt.skipped_steps, opt.skipped_in_a_row))
    assert counts == [(0, 0), (1, 1), (2, 2), (2, 0), (3, 1)]
    again = pickle.loads(pickle.dumps(opt))
    assert (again.skipped_steps, again.skipped_in_a_row) == (3, 1)
    assert [int(v) for v in opt.variables()[-2:]] == [1, 3]


def stack() -> list[Any]:
    """Return the levels of a stack, the outermost first."""
    base = ls.MomentumOptimizer(0.1, 0.9)
    clipping = ls.VariableClippingOptimizer(base, {}, 1.0)
    scaling = ls.MixedPrecisionLossScaleOptimizer(clipping, ls.DynamicLossScale(8.0))
    return [ls.MultitaskOptimizerWrapper(scaling), scaling, clipping]


def test_a_report_is_never_missing_and_never_old() -> None:
    (outer, scaling, clipping), w = stack(), weight()
    assert {level.last_step for level in (outer, scaling, clipping)} == {NO_STEP}
    assert isinstance(scaling.last_step, ScaledStepReport)
    outer.apply_gradients([(gradient(1, 1), w)])
    assert all(level.last_step.applied for level in (outer, scaling, clipping))
    outer.apply_gradients([(gradient(0, 0), w)])
    assert outer.last_step.reason == "of 1 gradients 1 all zero"
    assert {scaling.last_step, clipping.last_step} == {NO_GRADIENTS}
    assert isinstance(scaling.last_step, ScaledStepReport)
    outer.apply_gradients([(gradient(1, 1), w)])
    outer.apply_gradients([(gradient(1, np.inf), w)])
    assert scaling.last_step.nonfinite == ("w",)
    assert clipping.last_step == NO_GRADIENTS


@pytest.mark.parametrize(
    "name", ["MixedPrecisionLossScaleOptimizer", "MixedPrecisionOptimizerWrapper"]
)
def test_only_strict_hides_the_slots(name: str) -> None:
    for module, names in ((ls, ["momentum"]), (strict, [])):
        w, opt = weight(), getattr(module, name)(ls.MomentumOptimizer(0.5, 0.5), 8.0)
        opt.apply_gradients([(gradient(1, 1), w)])
        assert opt.get_slot_names() == names
        assert (opt.get_slot(w, "momentum") is None) is (module is strict)
