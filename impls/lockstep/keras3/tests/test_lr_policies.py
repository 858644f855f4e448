"""Policies of variables, and as schedules: in fit, in wrappers, in files."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.keras3 import (
    MultitaskOptimizerWrapper,
    PolicySchedule,
    VariableClippingOptimizer,
    lr_policies,
)

ARGUMENTS: dict[str, dict[str, Any]] = {
    "fixed_lr": {},
    "piecewise_constant": {"boundaries": [3, 9], "decay_rates": [0.5, 0.3]},
    "exp_decay": {"decay_steps": 4, "decay_rate": 0.7, "use_staircase_decay": False},
    "poly_decay": {"decay_steps": 11, "power": 1.7, "min_lr": 0.02, "warmup_steps": 5},
    "cosine_decay": {"decay_steps": 11, "begin_decay_at": 3, "min_lr": 0.02},
    "inv_poly_decay": {"decay_steps": 11, "min_lr": 0.02, "warmup_steps": 3},
    "transformer_policy": {"d_model": 16, "warmup_steps": 6, "dtype": "float16"},
}
STEPS = (0, 1, 3, 4, 9, 17, 70000)


def bits(rate: Any) -> bytes:
    return np.asarray(rate).tobytes()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_schedule_is_the_policy_to_the_bit(name: str) -> None:
    arguments = {"learning_rate": 0.25, **ARGUMENTS[name]}
    schedule = PolicySchedule(name, **arguments)
    policy = getattr(lr_policies, name)
    for step in STEPS:
        expected = bits(policy(step, **arguments))
        assert bits(schedule(tf.constant(step, tf.int64))) == expected


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_compiled_schedule_is_traced_once(name: str, jit: bool) -> None:
    schedule = PolicySchedule(name, learning_rate=0.1, **ARGUMENTS[name])
    step, traces = tf.Variable(0, dtype=tf.int64), []

    @tf.function(jit_compile=jit, autograph=False)
    def rate() -> Any:
        traces.append(1)
        return tf.convert_to_tensor(schedule(step))

    # XLA takes pow and cos, and products of sums, otherwise than the kernels.
    within = 1e-2 if name == "transformer_policy" else 1e-5
    for at in (*STEPS[:-1], 11, 12):
        step.assign(at)
        assert float(rate()) == pytest.approx(float(schedule(at)), rel=within)
    assert len(traces) == 1


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
@pytest.mark.parametrize("length", [3, 11, 22, 49])
def test_a_compiled_decay_ends_at_its_floor(length: int, jit: bool) -> None:
    """XLA multiplies by reciprocals, with which 11 / 11 is more than 1."""
    arguments = {"learning_rate": 0.1, "decay_steps": length, "min_lr": 0.02}
    schedule = PolicySchedule("poly_decay", power=1.7, **arguments)
    rate = tf.function(schedule, jit_compile=jit, autograph=False)
    assert float(rate(tf.constant(length))) == pytest.approx(0.02)


def trained(optimizer: Any, epochs: int = 6, **options: Any) -> keras.Model:
    inputs = keras.Input((2,))
    dense = keras.layers.Dense(1, use_bias=False, name="w")
    model = keras.Model(inputs, dense(inputs))
    dense.kernel.assign([[1.0], [2.0]])
    model.compile(optimizer, "mse", **options)
    fit(model, epochs)
    return model


def fit(model: keras.Model, epochs: int) -> None:
    x = np.float32([[0.5, 1], [1, 0.25]])
    model.fit(x, np.float32([[1], [-1]]), epochs=epochs, verbose=0, shuffle=False)


WRAPS: dict[str, Any] = {
    "bare": lambda opt: opt,
    "multitask": MultitaskOptimizerWrapper,
    "clip": lambda opt: VariableClippingOptimizer(opt, {"w/kernel": [0]}, 1e3),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("wrap", "way"), [("bare", "eager"), ("clip", "jit"), ("multitask", "graph")]
)
def test_fit_takes_the_rate_of_every_step(wrap: str, way: str) -> None:
    options = {"run_eagerly": way == "eager", "jit_compile": way == "jit"}
    arguments = {"learning_rate": 0.5, "decay_steps": 4, "min_lr": 0.125}
    by_hand = keras.optimizers.SGD(0.5)
    expected = trained(by_hand, 0, run_eagerly=True)
    for step in range(6):
        by_hand.learning_rate = float(lr_policies.poly_decay(step, **arguments))
        fit(expected, 1)
    schedule = PolicySchedule("poly_decay", **arguments)
    got = trained(WRAPS[wrap](keras.optimizers.SGD(schedule)), **options)
    kernels = [model.get_layer("w").kernel.numpy() for model in (got, expected)]
    # Two compilations of one step may round a few operations differently.
    np.testing.assert_allclose(*kernels, rtol=1e-6)
    assert float(got.optimizer.learning_rate) == 0.125


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_configuration_makes_the_same_schedule(name: str) -> None:
    schedule = PolicySchedule(name, learning_rate=np.float32(0.1), **ARGUMENTS[name])
    saved = keras.saving.serialize_keras_object(schedule)
    assert saved["registered_name"] == "lockstep>PolicySchedule"
    twin = keras.saving.deserialize_keras_object(saved)
    assert twin.get_config() == schedule.get_config()
    assert [bits(twin(s)) for s in STEPS] == [bits(schedule(s)) for s in STEPS]


@pytest.mark.parametrize(
    ("policy", "arguments", "error", "words"),
    [
        ("pol_decay", {}, ValueError, "did you mean 'poly_decay'"),
        ("poly_decay", {"decay_step": 4}, ValueError, "did you mean 'decay_steps'"),
        (lr_policies.fixed_lr, {}, TypeError, "expected the name of a policy"),
    ],
)
def test_bad_input_is_one_sentence(
    policy: Any, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        PolicySchedule(policy, **arguments)
