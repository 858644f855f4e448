"""Policies of tensors and variables, eagerly, in functions and in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import reference
from lockstep.errors import OutOfRangeError
from lockstep.tf import MomentumOptimizer, lr_policies
from lockstep.tf.strict import lr_policies as strict_policies

ARGUMENTS: dict[str, dict[str, Any]] = {
    "piecewise_constant": {"boundaries": [3, 9], "decay_rates": [0.5, 0.3]},
    "exp_decay": {"decay_steps": 4, "decay_rate": 0.7, "use_staircase_decay": False},
    "poly_decay": {"decay_steps": 11, "power": 1.7, "min_lr": 0.02, "warmup_steps": 5},
    "cosine_decay": {"decay_steps": 11, "begin_decay_at": 3, "min_lr": 0.02},
    "inv_poly_decay": {"decay_steps": 11, "min_lr": 0.02, "warmup_steps": 3},
    "transformer_policy": {"d_model": 16, "warmup_steps": 6, "max_lr": 0.02},
}
STEPS = (0, 1, 3, 4, 9, 17)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize(
    "policies", [lr_policies, strict_policies], ids=["default", "strict"]
)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_variable_step_is_read_and_traced_once(
    policies: Any, name: str, dtype: tf.DType
) -> None:
    step, traces = tf.Variable(0, dtype=dtype), []

    @tf.function
    def rate() -> tf.Tensor:
        traces.append(1)
        return getattr(policies, name)(step, 0.1, **ARGUMENTS[name])

    for at in STEPS:
        step.assign(at)
        expected = getattr(policies, name)(at, 0.1, **ARGUMENTS[name])
        assert rate().numpy() == pytest.approx(expected.numpy(), rel=1e-6)
    assert len(traces) == 1


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_vector_of_steps_gives_the_rates_of_the_reference(name: str) -> None:
    steps = np.arange(20)
    rates = getattr(lr_policies, name)(tf.constant(steps), 0.1, **ARGUMENTS[name])
    expected = getattr(reference.lr_policies, name)(steps, 0.1, **ARGUMENTS[name])
    # Kernels take cos and pow of several numbers at a time otherwise than of one.
    np.testing.assert_array_max_ulp(rates.numpy(), expected, maxulp=4)


def test_the_first_step_of_a_cosine_has_its_rounding_already() -> None:
    base, least = np.float32(0.1), np.float32(0.02)
    assert (base - least) + least != base
    for step, expected in ((2, base), (3, (base - least) + least)):
        rate = lr_policies.cosine_decay(step, 0.1, 11, begin_decay_at=3, min_lr=0.02)
        assert rate.numpy() == expected


def test_a_rate_may_be_a_tensor() -> None:
    rate = lr_policies.poly_decay(tf.constant(2), tf.constant(0.5), 4)
    assert rate.numpy() == 0.25


def test_an_optimizer_takes_a_callable_rate() -> None:
    step = tf.Variable(0, dtype=tf.int64)
    weight = tf.Variable(4.0)
    optimizer = MomentumOptimizer(lambda: lr_policies.poly_decay(step, 1.0, 4), 0.0)
    seen = []
    for _ in range(5):
        optimizer.apply_gradients([(tf.constant(1.0), weight)], global_step=step)
        seen.append(weight.numpy().item())
    assert seen == [3.0, 2.25, 1.75, 1.5, 1.5]


def test_a_graph_follows_its_step() -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        step = v1.train.get_or_create_global_step()
        weight = v1.get_variable("weight", initializer=4.0, use_resource=True)
        rate = lr_policies.poly_decay(step, 1.0, 4)
        optimizer = MomentumOptimizer(rate, 0.0)
        apply = optimizer.apply_gradients([(tf.constant(1.0), weight)], step)
        session.run(v1.global_variables_initializer())
        seen = []
        for _ in range(3):
            session.run(apply)
            seen.append(session.run(weight).item())
    assert seen == [3.0, 2.25, 1.75]


def test_an_ambiguous_step_is_refused_where_it_is_evaluated() -> None:
    @tf.function
    def rate(step: tf.Tensor) -> tf.Tensor:
        return lr_policies.piecewise_constant(step, 1.0, [8, 4], [0.5, 0.1])

    assert rate(tf.constant(9, tf.int64)).numpy() == np.float32(0.1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="sort them"):
        rate(tf.constant(5, tf.int64))


def test_an_ambiguous_step_has_the_error_of_the_other_backends_eagerly() -> None:
    arguments = tf.constant(5, tf.int64), 1.0, [8, 4], [0.5, 0.1]
    for policies in (lr_policies, strict_policies):
        for error in (OutOfRangeError, tf.errors.InvalidArgumentError):
            with pytest.raises(error, match="sort them"):
                policies.piecewise_constant(*arguments)
