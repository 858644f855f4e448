"""What ``optimize_loss`` refuses on PyTorch, and that it changes nothing then."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import Parameter

from lockstep import pytorch as ls
from lockstep.pytorch.tests.steps import INPUTS, model_in, rate, step_of


def made(**options):
    given = {"optimizer": "SGD", "optimizer_params": {}}
    return partial(step_of, model_in(), **{**given, **options})


def two_rates():
    groups = [{"params": [Parameter(torch.ones(1))], "lr": r} for r in (0.1, 0.2)]
    return torch.optim.SGD(groups)


def other():
    return torch.optim.SGD([Parameter(torch.ones(1))], lr=0.1)


REFUSED = [
    ({"optimizer": "Momentun"}, ValueError, "did you mean 'Momentum'"),
    ({"optimizer": "Momentum"}, TypeError, "'momentum'"),
    ({"optimizer": "AdamW"}, KeyError, "'weight_decay'"),
    ({"optimizer_params": {"beta": 0.5}}, TypeError, "'beta'"),
    ({"optimizer_params": {"learning_rate": 0.1}}, TypeError, "decay_fn"),
    ({"optimizer": 3}, TypeError, "an int"),
    ({"optimizer": lambda params, lr: 3}, TypeError, "an int"),
    ({"optimizer": other(), "optimizer_params": {"a": 1}}, TypeError, "beside a"),
    (
        {"optimizer": other(), "var_list": [Parameter(torch.ones(3))]},
        ValueError,
        "of this optimizer's groups",
    ),
    ({"optimizer": two_rates()}, ValueError, "one rate, got 0.1, 0.2"),
    ({"summaries": ["learning_rat"]}, ValueError, "did you mean 'learning_rate'"),
    ({"dtype": torch.float64}, ValueError, "dtype"),
    ({"dtype": "mixed", "loss_scaling": "Bakoff"}, ValueError, "'Backoff'"),
    (
        {"dtype": "mixed", "loss_scaling_params": {"scale_max": 8.0}},
        ValueError,
        "'scale_max' beside 1.0",
    ),
    ({"clip_gradients": 0.0}, ValueError, "clip_gradients"),
    ({"larc_params": {}}, ValueError, "larc_eta"),
    ({"iter_size": 2.0}, ValueError, "iter_size"),
    ({"learning_rate_decay_fn": lambda step: -0.1}, ValueError, "finite rate"),
    ({"model": None}, ValueError, "var_list"),
    ({"var_list": [3]}, ValueError, "var_list"),
]


@pytest.mark.parametrize(
    ("options", "error", "words"), REFUSED, ids=[row[2] for row in REFUSED]
)
def test_what_cannot_work_is_refused_in_one_sentence(options, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        made(**options)()
    assert str(caught.value).endswith((".", "?"))


def test_a_loss_that_is_there_already_is_refused() -> None:
    weight = Parameter(torch.ones(2))
    with pytest.raises(RuntimeError, match="each step calls it"):
        ls.optimize_loss(weight.sum(), "SGD", {}, rate, [weight])


def test_a_loss_is_not_scaled_twice() -> None:
    def scaled(parameters, learning_rate):
        sgd = ls.GradientDescentOptimizer(parameters, learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0)

    with pytest.raises(ValueError, match="not scaled yet"):
        made(optimizer=scaled, dtype="mixed")()
    assert made(optimizer=scaled)().pipeline == ("unscale", "finite check", "update")


def test_a_bad_rate_is_noticed_before_anything_changes() -> None:
    model = model_in()
    before = model.weight.detach().clone()
    step = step_of(model, learning_rate_decay_fn=lambda step: 0.1 if step < 1 else -1)
    step(INPUTS)
    after = model.weight.detach().clone()
    with pytest.raises(ValueError, match="finite rate"):
        step(INPUTS)
    assert torch.equal(model.weight, after) and not torch.equal(after, before)


def test_a_stack_that_clips_is_refused_beside_larc() -> None:
    def clipping(parameters, learning_rate):
        sgd = ls.GradientDescentOptimizer(parameters, learning_rate)
        return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0, clip_norm=1.0)

    with pytest.raises(ValueError, match="leave one of them out"):
        made(optimizer=clipping, larc_params={"larc_eta": 0.1})()
    assert made(optimizer=clipping)().pipeline[-3:] == ("norm", "clip", "update")
