"""Regularizers that act on the float32 masters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.tf import (
    GradientDescentOptimizer,
    MixedPrecisionOptimizerWrapper,
    mp_regularizer_wrapper,
)
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.masters.models import HALF, START, STEPS, Training, masters

Hosts = Callable[..., Any]


def test_a_regularizer_is_applied_at_the_master(new_driver: Hosts) -> None:
    driver = new_driver()
    w = driver.variable("w", np.array([1, 2], HALF))
    regularize = mp_regularizer_wrapper(lambda weight: 2.0**-13 * tf.nn.l2_loss(weight))
    assert regularize(w) is None and regularize(w) is None
    base = driver.optimizer("GradientDescent", {"learning_rate": 1.0}, [w])
    wrapper = MixedPrecisionOptimizerWrapper(base, 64.0)

    def train(given: list[Any]) -> Any:
        loss = driver.linear_loss([w], given)
        return wrapper.apply_gradients(wrapper.compute_gradients(loss, [w]))

    driver.compile(train)([np.zeros(2, HALF)])
    assert driver.read(wrapper.master(w)).tolist() == [1 - 2**-13, 2 - 2**-12]


def test_a_regularizer_alone_trains_a_weight_that_the_loss_leaves_out(
    new_driver: Hosts,
) -> None:
    run = Training(new_driver(), masters(4.0), START.astype(HALF), START.astype(HALF))
    mp_regularizer_wrapper(tf.nn.l2_loss)(run.variables[1])
    _, _, slope = run.step([STEPS[0].astype(HALF), None])
    assert slope.tobytes() == START.astype(HALF).astype(np.float32).tobytes()


def test_of_two_regularizers_of_a_weight_the_last_one_counts() -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    for share in (0.5, 0.25):
        mp_regularizer_wrapper(lambda weight, share=share: share * weight[0])(w)
    wrapper = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(1.0))
    wrapper.minimize(lambda: 0.0 * tf.reduce_sum(w), var_list=[w])
    assert w.numpy().tolist() == [0.75]


def test_wide_weights_and_tensors_are_regularized_at_once() -> None:
    regularize = mp_regularizer_wrapper(tf.nn.l2_loss)
    assert float(regularize(tf.Variable([3.0, 4.0]))) == 12.5
    assert float(regularize(tf.constant([3.0, 4.0], tf.float16))) == 12.5
    assert lockstep_strict.mp_regularizer_wrapper(tf.nn.l2_loss)(
        tf.Variable([3.0, 4.0], dtype=tf.bfloat16)
    )


def test_a_penalty_that_is_no_tensor_is_refused() -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    mp_regularizer_wrapper(lambda weight: 1.0)(w)
    wrapper = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(1.0))
    with pytest.raises(TypeError, match=r"expected a penalty that is .*, got 1\.0;"):
        wrapper.minimize(lambda: tf.reduce_sum(w), var_list=[w])


def test_a_regularizer_without_a_penalty_changes_nothing() -> None:
    w = tf.Variable([1.0], dtype=tf.float16)
    mp_regularizer_wrapper(lambda weight: None)(w)
    wrapper = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(1.0))
    wrapper.minimize(lambda: tf.reduce_sum(w), var_list=[w])
    assert w.numpy().tolist() == [0.0]
