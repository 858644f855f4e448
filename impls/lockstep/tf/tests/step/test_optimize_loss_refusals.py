"""What ``optimize_loss`` for TensorFlow cannot do, and the sentence that says so."""

from __future__ import annotations

from functools import partial

import pytest
import tensorflow as tf

from lockstep import tf as ls
from lockstep.tf import strict
from lockstep.tf.tests.steps import rate, step_of, weight_in

v1 = tf.compat.v1


def made(**options):
    given = {"optimizer": "SGD", "optimizer_params": {}}
    return partial(step_of, weight_in(), **{**given, **options})


class Frozen(v1.train.Optimizer):
    """An optimizer that keeps its rate where nobody finds it."""

    def __init__(self, learning_rate):
        super().__init__(False, "Frozen")


def other():
    return v1.train.AdamOptimizer()


REFUSED = [
    ({"optimizer": "Momentun"}, ValueError, "did you mean 'Momentum'"),
    ({"optimizer": "Momentum"}, TypeError, "'momentum'"),
    ({"optimizer": "AdamW"}, KeyError, "'weight_decay'"),
    ({"optimizer_params": {"beta": 0.5}}, TypeError, "'beta'"),
    ({"optimizer_params": {"learning_rate": 0.1}}, TypeError, "decay_fn"),
    ({"optimizer": 3}, TypeError, "an int"),
    ({"optimizer": lambda learning_rate: 3}, TypeError, "an int"),
    ({"optimizer": tf.keras.optimizers.SGD}, TypeError, "a SGD"),
    ({"optimizer": other(), "optimizer_params": {"a": 1}}, TypeError, "beside a"),
    ({"optimizer": Frozen}, ValueError, "_learning_rate, got Frozen"),
    ({"summaries": ["learning_rat"]}, ValueError, "did you mean 'learning_rate'"),
    ({"dtype": tf.float64}, ValueError, "dtype"),
    ({"dtype": "mixed", "loss_scaling": "Bakoff"}, ValueError, "'Backoff'"),
    (
        {"dtype": "mixed", "loss_scaling_params": {"scale_max": 8.0}},
        ValueError,
        "'scale_max' beside 1.0",
    ),
    ({"clip_gradients": 0.0}, ValueError, "clip_gradients"),
    (
        {"clip_gradients": 1.0, "larc_params": {"larc_eta": 0.1}},
        ValueError,
        "LARC|larc",
    ),
    ({"larc_params": {}}, ValueError, "larc_eta"),
    ({"iter_size": 2.0}, ValueError, "iter_size"),
    ({"learning_rate_decay_fn": lambda step: -0.1}, ValueError, "finite rate"),
    ({"var_list": None}, ValueError, "var_list"),
    ({"var_list": [3]}, TypeError, "int|variable"),
]


@pytest.mark.parametrize(
    ("options", "error", "words"), REFUSED, ids=[row[2] for row in REFUSED]
)
def test_what_cannot_work_is_refused_in_one_sentence(options, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        made(**options)()
    assert str(caught.value).rstrip("'\"").endswith((".", "?"))


def test_strict_refuses_an_instance_and_an_integer_scale() -> None:
    with pytest.raises(TypeError, match="an instance of AdamOptimizer"):
        made(names=strict, optimizer=other())()
    with pytest.raises(AttributeError, match="128"):
        made(names=strict, dtype="mixed", loss_scaling=128)()


def test_a_loss_that_is_there_already_is_refused_eagerly() -> None:
    weight = tf.Variable([1.0])
    with pytest.raises(RuntimeError, match="each step calls it"):
        ls.optimize_loss(tf.reduce_sum(weight), "SGD", {}, rate, [weight])


def test_a_loss_is_not_scaled_twice() -> None:
    def scaled(learning_rate):
        sgd = v1.train.GradientDescentOptimizer(learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0)

    with pytest.raises(ValueError, match="not scaled yet"):
        made(optimizer=scaled, dtype="mixed")()


def test_larc_beside_a_wrapper_that_clips_is_refused() -> None:
    def clipping(learning_rate):
        sgd = v1.train.GradientDescentOptimizer(learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0, clip_norm=1.0)

    with pytest.raises(ValueError, match="clip"):
        made(optimizer=clipping, larc_params={"larc_eta": 0.1})()
