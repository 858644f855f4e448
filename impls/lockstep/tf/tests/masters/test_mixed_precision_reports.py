"""What the masters' wrapper says: its steps, its stalls, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import errors
from lockstep.tf import (
    AdamOptimizer,
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionOptimizerWrapper,
    mp_regularizer_wrapper,
    strict,
)
from lockstep.tf.tests.masters.models import masters


def test_the_report_names_the_model_and_what_was_not_finite() -> None:
    half = tf.Variable([1.0], dtype=tf.float16, name="half")
    wide = tf.Variable([1.0], name="wide")
    wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer(), 8, clip_norm=5.0)
    wrapper.minimize(lambda: 3.0 * wide[0] + 4.0 * tf.cast(half[0], tf.float32))
    assert wrapper.last_step.applied and wrapper.last_step.norm == 5.0
    assert wrapper.last_step.clip_factor == 1.0
    wrapper.minimize(lambda: wide[0] + np.inf * tf.cast(half[0], tf.float32))
    report = wrapper.last_step
    assert not report.applied and report.nonfinite == ("half",)
    assert report.reason == "skipped, not finite: half; loss scale 8"
    assert report.skipped == ("half", "wide")
    wrapper.apply_gradients([(tf.constant([3e38]), wide)])
    assert "the norm of all gradients" in wrapper.last_step.reason


STALLS: dict[str, Callable[[], Any]] = {
    "a number": lambda: 8.0,
    "a floor": lambda: DynamicLossScale(1.0),
    "a scaler": lambda: AutomaticLossScaler("Backoff", {"scale_min": 2.0**14}),
}


@pytest.mark.parametrize("scale", STALLS)
def test_a_stall_at_the_floor_is_told_in_the_name_of_the_wrapper(scale: str) -> None:
    w = tf.Variable([1.0], dtype=tf.float16, name="w")
    wrapper = masters(STALLS[scale](), at_floor="raise", floor_patience=2)(
        AdamOptimizer()
    )
    wrapper.apply_gradients([(tf.constant([np.inf], tf.float16), w)])
    with pytest.raises(
        errors.ScaleStalledError,
        match=r"^MixedPrecisionOptimizerWrapper: .* 2 skipped in a row .*: w; ",
    ):
        wrapper.apply_gradients([(tf.constant([np.inf], tf.float16), w)])
    wrapper.apply_gradients([(tf.constant([1.0], tf.float16), w)])
    assert int(wrapper.skipped_in_a_row) == 0


def test_a_stall_in_a_function_is_told_as_it_runs() -> None:
    w = tf.Variable([1.0], dtype=tf.float16, name="w")
    wrapper = masters(8.0, at_floor="raise", floor_patience=2)(AdamOptimizer())
    step = tf.function(lambda g: wrapper.apply_gradients([(g, w)]) and None)
    bad = tf.constant([np.nan], tf.float16)
    step(bad)
    with pytest.raises(tf.errors.InvalidArgumentError, match="OptimizerWrapper: "):
        step(bad)


def test_a_stall_in_a_function_names_the_norm_where_each_gradient_is_finite() -> None:
    w = tf.Variable([1.0], name="w")
    wrap = masters(8.0, clip_norm=5.0, at_floor="raise", floor_patience=1)
    wrapper = wrap(AdamOptimizer())
    step = tf.function(lambda g: wrapper.apply_gradients([(g, w)]) and None)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the norm of all grad"):
        step(tf.constant([3e38]))


def test_strict_fails_at_the_first_use_of_a_loss_scale_as_the_original_did() -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    base = strict.GradientDescentOptimizer(1.0)
    wrapper = strict.MixedPrecisionOptimizerWrapper(base, strict.FixedLossScale(8.0))
    with pytest.raises(errors.UnusableScaleError, match="leave strict off"):
        wrapper.minimize(lambda: tf.cast(w, tf.float32), var_list=[w])


BAD = {
    "a class": (AdamOptimizer, None, {}, errors.NotScalableError),
    "a Keras name": ("adam", None, {}, errors.NotScalableError),
    "a number as text": (AdamOptimizer(), "128", {}, errors.UnknownNameError),
    "a bool": (AdamOptimizer(), True, {}, errors.UnknownNameError),
    "zero": (AdamOptimizer(), 0, {}, errors.OutOfRangeError),
    "infinity": (AdamOptimizer(), float("inf"), {}, errors.OutOfRangeError),
    "a floor": (AdamOptimizer(), 1.0, {"at_floor": "stop"}, errors.OutOfRangeError),
    "a clip of 0": (AdamOptimizer(), 1.0, {"clip_norm": 0}, errors.OutOfRangeError),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_in_a_sentence(case: str) -> None:
    optimizer, scale, arguments, error = BAD[case]
    with pytest.raises(error, match=r"expected .*, got .*; .*\."):
        MixedPrecisionOptimizerWrapper(optimizer, scale, **arguments)


def test_bad_calls_are_refused_before_anything_changes() -> None:
    w = tf.Variable([1.0, 2.0], dtype=tf.float16)
    wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer(), "dynamic")
    master = wrapper.master(w)
    for pairs, error in (
        ([], ValueError),
        ([(None, master)], ValueError),
        ([(tf.ones([3]), master)], ValueError),
        ([(tf.ones([2], tf.float64), master)], TypeError),
        ([tf.ones([2])], TypeError),
    ):
        with pytest.raises(error):
            wrapper.apply_gradients(pairs)
    with pytest.raises(RuntimeError, match="callable"):
        wrapper.compute_gradients(tf.constant(1.0), [w])
    with pytest.raises(TypeError, match="callable"):
        mp_regularizer_wrapper(0.1)
    assert wrapper.inner_optimizer.variables() == []
    assert int(wrapper.scale_object.good_steps) == 0
