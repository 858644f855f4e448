"""The optimizers by name: their arguments, and the files that have them."""

from __future__ import annotations

import inspect
from typing import Any

import keras
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep import tf as lockstep_tf
from lockstep.optimizers import RULES

ARGUMENTS: dict[str, dict[str, Any]] = {
    "GradientDescent": {"learning_rate": 0.5},
    "Momentum": {"learning_rate": 0.5, "momentum": 0.5},
    "Adam": {},
    "AdamW": {"weight_decay": 0.25},
    "Adagrad": {"learning_rate": 0.5},
    "RMSProp": {"learning_rate": 0.5},
    "Ftrl": {"learning_rate": 0.5},
    "NovoGrad": {"weight_decay": 0.25, "grad_averaging": True},
}


def parameters(found: Any) -> list[tuple[str, Any]]:
    """Return (name, default) of what a constructor names, in order."""
    listed = inspect.signature(found).parameters.values()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [(each.name, each.default) for each in listed if each.kind not in variadic]


@pytest.mark.parametrize("name", RULES)
def test_arguments_are_those_of_the_tensorflow_face(name: str) -> None:
    class_name = RULES[name].class_name
    expected = dict(parameters(getattr(lockstep_tf, class_name)))
    found = dict(parameters(getattr(keras3, class_name)))
    # Where only one of the two has quirks to reproduce, only that one can be strict.
    assert {**found, "strict": False} == {**expected, "strict": False}


@pytest.mark.parametrize("names", [keras3])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_configuration_makes_the_same_optimizer(name: str, names: Any) -> None:
    made = getattr(names, RULES[name].class_name)(**ARGUMENTS[name], clipnorm=1.0)
    config = keras.saving.serialize_keras_object(made)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(made) and again.get_config() == made.get_config()


def test_ftrl_takes_no_step_at_rate_0() -> None:
    w = keras.Variable([1.0])
    keras3.FtrlOptimizer(0.0).apply([tf.ones([1])], [w])
    assert w.numpy().tolist() == [1.0]


def test_ftrl_takes_the_beta_of_tensorflow_2() -> None:
    w, expected = keras.Variable([1.0, -2.0]), tf.Variable([1.0, -2.0])
    made = keras3.FtrlOptimizer(0.5, beta=0.25)
    original = tf.compat.v1.train.FtrlOptimizer(0.5, beta=0.25)
    for _ in range(2):
        made.apply([tf.constant([0.5, 2.0])], [w])
        original.apply_gradients([(tf.constant([0.5, 2.0]), expected)])
    # Two orders of the same float32 operations.
    assert w.numpy() == pytest.approx(expected.numpy(), rel=1e-6)
    without = keras.Variable([1.0, -2.0])
    keras3.FtrlOptimizer(0.5).apply([tf.constant([0.5, 2.0])], [without])
    assert without.numpy().tolist() != w.numpy().tolist()
