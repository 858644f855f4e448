"""Float32 masters in the reference where no recorded case speaks: its options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep.reference import (
    AutomaticLossScaler,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    Rows,
    Variable,
)

HALF = np.float16


def weight(*values: float, name: str = "w", dtype: Any = HALF) -> Variable:
    return Variable(name, np.array(values, dtype), dtype)


def masters(loss_scale: Any = 8.0, **options: Any) -> MixedPrecisionOptimizerWrapper:
    base = GradientDescentOptimizer(1.0)
    return MixedPrecisionOptimizerWrapper(base, loss_scale, **options)


def test_strict_applies_nan_under_a_number_as_scale_and_takes_no_norm() -> None:
    w = weight(1.0)
    opt = masters(clip_norm=1.0, strict=True)
    opt.apply_gradients([(np.array([np.nan], HALF), w)])
    assert opt.last_step.applied and np.isnan(w.value).all()
    assert (opt.last_step.norm, opt.last_step.clip_factor) == (None, None)


def test_a_scaler_sees_gradients_below_one_as_they_are() -> None:
    scaler, alone = AutomaticLossScaler("LogMax"), AutomaticLossScaler("LogMax")
    small = np.float32([0.25])
    masters(scaler).apply_gradients([(small, weight(1.0, dtype=np.float32))])
    alone.update_op(False, np.float32(0.25))
    assert scaler.state == alone.state


def test_the_report_has_norm_and_factor_and_names_the_model() -> None:
    w = weight(0.0, 0.0)
    opt = masters(clip_norm=2.5)
    opt.apply_gradients([(np.array([3, 4], HALF), w)])
    assert (opt.last_step.norm, opt.last_step.clip_factor) == (5.0, 0.5)
    assert w.value.tolist() == [-1.5, -2.0]
    opt.apply_gradients([(np.array([3, np.inf], HALF), w)])
    assert opt.last_step.nonfinite == ("w",) == opt.last_step.skipped
    assert w.value.tolist() == [-1.5, -2.0]


@pytest.mark.parametrize("loss_scale", [8.0, "dynamic", AutomaticLossScaler()])
def test_sums_and_norms_that_overflow_skip_the_step(loss_scale: Any) -> None:
    w = weight(1.0, 1.0, dtype=np.float32)
    opt = masters(loss_scale, clip_norm=1.0)
    before = float(opt.loss_scale)
    huge = Rows(np.array([0, 0]), np.float32([3e38, 3e38]), (2,))
    for gradient in (huge, np.float32([3e38, 3e38])):
        opt.apply_gradients([(gradient, w)])
        assert not opt.last_step.applied and w.value.tolist() == [1.0, 1.0]
    assert float(opt.loss_scale) == (before if before == 8 else before / 4)


@pytest.mark.parametrize(
    "wrapped", [MixedPrecisionOptimizerWrapper, MixedPrecisionLossScaleOptimizer]
)
def test_a_multitask_wrapper_around_does_not_claim_a_skipped_step(wrapped: Any) -> None:
    w = weight(1.0, dtype=np.float32)
    opt = MultitaskOptimizerWrapper(wrapped(GradientDescentOptimizer(0.5), 2.0))
    opt.apply_gradients([(np.float32([np.inf]), w)])
    assert not opt.last_step.applied and opt.last_step.skipped == ("w",)
    assert opt.last_step.nonfinite == ("w",)
    opt.apply_gradients([(np.float32([1.0]), w)])
    assert opt.last_step.applied


def test_what_others_write_into_the_model_goes_into_the_masters() -> None:
    w, absent = weight(1.0, 2.0, name="w"), weight(4.0, name="absent")
    opt = masters()
    tiny = np.array([2.0**-12, 0.0], np.float32)

    def step() -> None:
        pairs = opt.compute_gradients(lambda: [np.zeros(2, HALF), None], [w, absent])
        opt.apply_gradients([(tiny, opt.master(w)), *pairs[1:]])

    step()
    assert opt.master(w).value.tolist() == [1 - 2.0**-12, 2.0]
    w.value[1], absent.value[0] = 8.0, 16.0
    step()
    # What rounds to the model keeps what half precision has no room for.
    assert opt.master(w).value.tolist() == [1 - 2.0**-11, 8.0]
    assert (w.value[1], absent.value[0]) == (8.0, 16.0)
    w.value[1] = np.nan
    opt.apply_gradients([(np.ones(2, HALF), w)])
    assert np.isnan(w.value[1]) and w.value[0] == -(2.0**-11)


def test_strict_overwrites_what_others_write_into_the_model() -> None:
    w = weight(1.0)
    opt = masters(strict=True)
    for _ in range(2):
        pairs = opt.compute_gradients(lambda: [np.zeros(1, HALF)], [w])
        opt.apply_gradients(pairs)
        assert w.value.tolist() == [1.0]
        w.value = np.array([8.0], HALF)
