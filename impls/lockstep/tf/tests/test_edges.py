"""Edges of the tools: at a limit, after an overflow, and values without a meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep import tf as ls
from lockstep.interface import NO_EAGER_STEP, NO_STEP
from lockstep.scalers import ScaledStepReport
from lockstep.tf import strict

Scaled, Masters = ls.MixedPrecisionLossScaleOptimizer, ls.MixedPrecisionOptimizerWrapper
INF, ONES = float("inf"), tf.ones([2])


def sgd() -> Any:
    return ls.GradientDescentOptimizer(0.5)


def test_complex_gradients_are_refused_by_larc() -> None:
    w = tf.Variable([1 + 1j], dtype=tf.complex64)
    pairs = [(tf.constant([3 + 4j], tf.complex64), w)]
    with pytest.raises(errors.DtypeError):
        ls.post_process_gradients(pairs, [], 0.1, None, {"larc_eta": 0.1})


def test_novograd_begins_anew_after_a_norm_that_overflowed() -> None:
    w = tf.Variable([1.0])
    opt = ls.NovoGrad(0.5)
    opt.apply_gradients([(tf.constant([1e30]), w)])
    assert np.isinf(opt.get_slot(w, "second_moment").numpy())
    opt.apply_gradients([(tf.constant([2.0]), w)])
    assert opt.get_slot(w, "second_moment").numpy() == 4.0


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])
def test_below_the_limit_no_gradient_is_multiplied(traced: bool) -> None:
    # One of the limits c for which c (1/c) is not 1 in float32.
    limits = np.arange(2, 200, dtype=np.float32)
    limit = float(limits[limits * (np.float32(1) / limits) != 1][0])
    w = tf.Variable([0.0, 0.0])
    base = ls.GradientDescentOptimizer(1.0)
    opt = ls.MixedPrecisionLossScaleOptimizer(base, 1.0, clip_norm=limit)

    def step() -> None:
        opt.apply_gradients([(tf.constant([0.3, -0.7]), w)])

    (tf.function(step, autograph=False) if traced else step)()
    assert w.numpy().tolist() == np.float32([-0.3, 0.7]).tolist()
    if not traced:
        assert opt.last_step.clip_factor == 1.0


@pytest.mark.parametrize("power", [125, 126])
def test_gradients_are_divided_only_where_a_reciprocal_is_subnormal(power: int) -> None:
    scale = np.float32(1.5 * 2.0**power)
    base = ls.GradientDescentOptimizer(1.0)
    opt = ls.MixedPrecisionLossScaleOptimizer(base, float(scale))
    scaled = np.arange(1, 10, dtype=np.float32) * np.float32(2.0**20)
    (gradient,) = opt.unscale_gradients([tf.constant(scaled)])
    product, quotient = scaled * (np.float32(1) / scale), scaled / scale
    assert product.tolist() != quotient.tolist()
    expected = product if power < 126 else quotient
    assert gradient.numpy().tolist() == expected.tolist()


def test_a_rate_function_that_returns_nothing_is_told_so() -> None:
    w = tf.Variable([1.0])
    with pytest.raises(errors.RateFunctionError):
        ls.optimize_loss(lambda: tf.reduce_sum(w), "SGD", {}, lambda step: None, [w])


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("nan"), float("inf"), "1"])
def test_a_norm_that_clips_nothing_sensible_is_refused(clip_norm: Any) -> None:
    with pytest.raises(errors.OutOfRangeError):
        ls.clip_gradients_by_global_norm([(ONES, None)], clip_norm)


OUT_OF_RANGE: dict[str, Callable[[], Any]] = {
    "a negative decay": lambda: ls.AdamWOptimizer(-0.1),
    "a decay that is a text": lambda: ls.AdamWOptimizer("0.1"),
    "beta1 of 1": lambda: ls.AdamWOptimizer(0.1, beta1=1.0),
    "a negative rate": lambda: ls.FtrlOptimizer(-1.0),
    "a rate of NaN": lambda: ls.FtrlOptimizer(np.nan),
    "a scale that never trains": lambda: ls.DynamicLossScale(1e300),
    "a fixed scale of NaN": lambda: ls.FixedLossScale(np.nan),
    "a limit beyond float32": lambda: ls.clip_by_global_norm([ONES], 1e39),
    "a limit that is a bool": lambda: ls.clip_by_global_norm([ONES], True),
    "a rate that is a bool": lambda: ls.lr_policies.fixed_lr(0, True),
    "a step that is no integer": lambda: ls.lr_policies.fixed_lr(2.5, 0.1),
}


@pytest.mark.parametrize("make", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
def test_numbers_out_of_range_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(errors.OutOfRangeError):
        make()


@pytest.mark.parametrize("dtype", [tf.complex64, tf.int64], ids=str)
def test_gradients_that_are_no_real_floats_are_refused(dtype: tf.DType) -> None:
    """Imaginary parts would be dropped, and integers scaled to 0."""
    gradient = tf.cast(ONES, dtype)
    with pytest.raises(errors.LockstepError):
        ls.clip_gradients_by_global_norm([(gradient, tf.Variable(gradient))])


@pytest.mark.parametrize("module", [ls, strict], ids=["default", "strict"])
def test_an_error_inside_a_function_keeps_its_class(module: Any) -> None:
    calls = {
        errors.OutOfRangeError: lambda: module.FixedLossScale(0.5),
        errors.UnknownNameError: lambda: module.AutomaticLossScaler("x"),
        errors.MalformedPairsError: lambda: module.clip_gradients_by_norm(3, 1.0),
    }
    for error, call in calls.items():
        with pytest.raises(error):
            tf.function(call)()


@pytest.mark.parametrize("make", [Scaled, Masters])
def test_a_scaling_wrapper_reports_its_findings_from_the_start(make: Any) -> None:
    report = make(sgd(), 8.0).last_step
    assert isinstance(report, ScaledStepReport) and report != ScaledStepReport(*NO_STEP)
    assert report.nonfinite == () and report.norm is report.clip_factor is None


def test_the_step_of_optimize_loss_reports_from_the_start() -> None:
    w = tf.Variable([1.0], name="w")
    step = ls.optimize_loss(lambda: tf.reduce_sum(w), "SGD", {}, lambda s: 0.5, [w])
    assert step.last_step == NO_EAGER_STEP
    step()
    assert step.last_step.applied
    tf.function(lambda: step(), autograph=False)()
    assert step.last_step == NO_EAGER_STEP
