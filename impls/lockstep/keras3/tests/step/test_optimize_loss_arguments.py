"""Arguments of ``optimize_loss`` for Keras that are mistaken, and their sentences."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from lockstep import keras3 as ls
from lockstep.messages.tests.step_mistakes import mistakes

weight = keras.Variable([1.0, 2.0], name="weight")


def step_of(**options):
    given = {
        "loss": lambda: ops.sum(weight),
        "optimizer": "SGD",
        "optimizer_params": None,
    }
    given |= {"learning_rate_decay_fn": lambda step: 0.1, "var_list": [weight]}
    return ls.optimize_loss(**{**given, **options})


def counted(step):
    return int(step.micro_step), int(step.global_step)


REFUSED = [
    *mistakes(ls, weight),
    (
        {"var_list": None, "model": "linear"},
        ValueError,
        "a model with trainable variables, got a str",
    ),
    (
        {"var_list": None, "model": tf.Module()},
        ValueError,
        "got a Module without any",
    ),
]


@pytest.mark.parametrize(
    ("options", "error", "words"), REFUSED, ids=[row[2] for row in REFUSED]
)
def test_a_common_mistake_is_told_in_one_sentence(options, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        step_of(**options)
    assert str(caught.value).startswith("optimize_loss: ")


@pytest.mark.parametrize("flag", ["False", 2, np.array([True, False])], ids=str)
@pytest.mark.parametrize("asked", [False, True], ids=["given", "returned"])
def test_a_flag_that_is_none_adds_nothing(flag, asked) -> None:
    step = step_of(iter_size=2)
    with pytest.raises(ValueError, match="a bool, a 0-d bool"):
        step(skip_update=(lambda: flag) if asked else flag)
    assert counted(step) == (0, 0)


@pytest.mark.parametrize("flag", [True, np.array(True), np.True_], ids=repr)
def test_a_bool_and_an_array_of_one_say_that_a_call_only_adds(flag) -> None:
    step = step_of(iter_size=2, skip_update_ph=flag)
    step(), step(), step()
    assert counted(step) == (3, 0)


@pytest.mark.parametrize("got", [3, ls.NovoGrad, object()], ids=["3", "class", "any"])
def test_what_is_no_optimizer_has_no_pipeline(got) -> None:
    with pytest.raises(TypeError, match="pass the object that takes the steps"):
        ls.pipeline_of(got)


def test_the_pipeline_of_a_step_is_its_own() -> None:
    step = step_of(iter_size=2, clip_gradients=1.0)
    expected = ("accumulate", "norm", "clip", "update")
    assert ls.pipeline_of(step) == step.pipeline == expected
    assert ls.pipeline_of(keras.optimizers.SGD(0.1)) == ("update",)


def test_a_model_is_no_optimizer() -> None:
    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(TypeError, match="got a Sequential"):
        ls.pipeline_of(model)
