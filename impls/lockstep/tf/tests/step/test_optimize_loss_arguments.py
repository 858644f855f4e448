"""Arguments of ``optimize_loss`` that are mistaken, in TensorFlow, and the words."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as ls
from lockstep.messages.tests.step_mistakes import mistakes

v1 = tf.compat.v1
weight = tf.Variable([1.0, 2.0], name="weight")


def step_of(**options):
    given = {
        "loss": lambda: tf.reduce_sum(weight),
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
    assert ls.pipeline_of(v1.train.GradientDescentOptimizer(0.1)) == ("update",)


def test_a_single_variable_and_a_generator_may_be_listed() -> None:
    assert step_of(var_list=weight).trained == (weight,)
    assert step_of(var_list=(v for v in [weight])).trained == (weight,)


def build(flag):
    with tf.Graph().as_default():
        v1.train.create_global_step()
        variable = v1.get_variable("w", [2], use_resource=True)
        return ls.optimize_loss(
            tf.reduce_sum(variable),
            "SGD",
            {},
            lambda step: 0.1,
            iter_size=2,
            skip_update_ph=flag(),
        )


def test_a_graph_takes_placeholders_for_the_flag() -> None:
    assert build(lambda: v1.placeholder(tf.bool)) is not None
    assert build(lambda: v1.placeholder(tf.bool, [])) is not None


def test_a_graph_refuses_a_placeholder_of_numbers() -> None:
    with pytest.raises(ValueError, match="a 0-d bool"):
        build(lambda: v1.placeholder(tf.int32, []))
