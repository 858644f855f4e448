"""What ``optimize_loss`` for Keras cannot do, and the sentence that says so."""

from __future__ import annotations

from functools import partial

import keras
import pytest
from keras import ops

from lockstep import keras3 as ls
from lockstep.keras3.tests.steps import rate, step_of, weight_in


def made(**options):
    given = {"optimizer": "SGD", "optimizer_params": {}}
    return partial(step_of, weight_in(), **{**given, **options})


def scheduled():
    return keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10))


REFUSED = [
    ({"optimizer": "Momentun"}, ValueError, "did you mean 'Momentum'"),
    ({"optimizer": "Momentum"}, TypeError, "'momentum'"),
    ({"optimizer": "AdamW"}, KeyError, "'weight_decay'"),
    ({"optimizer_params": {"learning_rate": 0.1}}, TypeError, "decay_fn"),
    ({"optimizer": 3}, TypeError, "an int"),
    ({"optimizer": lambda learning_rate: 3}, TypeError, "an int"),
    (
        {"optimizer": keras.optimizers.SGD(), "optimizer_params": {"a": 1}},
        TypeError,
        "beside a",
    ),
    (
        {"optimizer": scheduled(), "optimizer_params": None},
        ValueError,
        "with a schedule",
    ),
    ({"summaries": ["learning_rat"]}, ValueError, "did you mean 'learning_rate'"),
    ({"dtype": "mixed", "loss_scaling": "Bakoff"}, ValueError, "'Backoff'"),
    (
        {"dtype": "mixed", "loss_scaling_params": {"scale_max": 8.0}},
        ValueError,
        "'scale_max' beside 1.0",
    ),
    ({"clip_gradients": 0.0}, ValueError, "clip_gradients"),
    ({"iter_size": 2.0}, ValueError, "iter_size"),
    ({"learning_rate_decay_fn": lambda step: -0.1}, ValueError, "finite rate"),
    ({"var_list": None}, ValueError, "var_list"),
    ({"var_list": [3]}, TypeError, "int"),
]


@pytest.mark.parametrize(
    ("options", "error", "words"), REFUSED, ids=[row[2] for row in REFUSED]
)
def test_what_cannot_work_is_refused_in_one_sentence(options, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        made(**options)()
    assert str(caught.value).rstrip("'\"").endswith((".", "?"))


def test_a_loss_that_is_there_already_is_refused() -> None:
    weight = weight_in()
    with pytest.raises(RuntimeError):
        ls.optimize_loss(ops.sum(weight), "SGD", {}, rate, [weight])


def test_a_loss_is_not_scaled_twice() -> None:
    def scaled(learning_rate):
        sgd = keras.optimizers.SGD(learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0)

    with pytest.raises(ValueError, match="not scaled yet"):
        made(optimizer=scaled, dtype="mixed")()


def test_larc_beside_a_wrapper_that_clips_is_refused() -> None:
    def clipping(learning_rate):
        sgd = keras.optimizers.SGD(learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0, clip_norm=1.0)

    with pytest.raises(ValueError, match="clip"):
        made(optimizer=clipping, larc_params={"larc_eta": 0.1})()
