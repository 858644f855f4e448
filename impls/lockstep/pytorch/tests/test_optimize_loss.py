"""Laws of ``optimize_loss`` for PyTorch, and what it refuses."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from lockstep import pytorch as ls
from lockstep.pytorch import strict

generator = torch.Generator().manual_seed(7)
INPUTS = torch.randint(-4, 5, (32, 3), generator=generator).float()
"""Whole numbers: their sums and means over powers of two are exact."""

LIMITS = {
    "plain": {},
    "clipped": {"clip_gradients": 0.5},
    "larc, clip": {"larc_params": {"larc_eta": 0.02}},
    "larc, scale": {"larc_params": {"larc_eta": 0.02, "larc_mode": "scale"}},
}
SCALES = {
    "not scaled": {},
    "scaled": {"dtype": "mixed", "loss_scaling": 256},
    "backoff": {"dtype": "mixed", "loss_scaling": "Backoff"},
}


def rate(global_step):
    return ls.lr_policies.poly_decay(global_step, 0.1, 100)


def model_in(dtype=torch.float32) -> nn.Linear:
    """Return a layer whose gradient is the same for all of its outputs."""
    model = nn.Linear(3, 2, bias=False, dtype=dtype)
    values = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]])
    nn.init.zeros_(model.weight).data.copy_(values)
    return model


def step_of(model: nn.Module, /, **options):
    def loss(batch):
        return model(batch.to(model.weight.dtype)).float().sum(1).mean()

    given = {"optimizer": "Momentum", "optimizer_params": {"momentum": 0.5}}
    given |= {"learning_rate_decay_fn": rate, "model": model}
    return ls.optimize_loss(loss, **{**given, **options})


def trained(model, batches, **options):
    step = step_of(model, **options)
    for batch in batches:
        step(batch)
    return step


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_four_micro_batches_of_8_are_one_batch_of_32(limit, scale, dtype) -> None:
    parts, whole = model_in(dtype), model_in(dtype)
    several = trained(parts, INPUTS.split(8), iter_size=4, **limit, **scale)
    single = trained(whole, [INPUTS], **limit, **scale)
    assert several.global_step == single.global_step == 1
    torch.testing.assert_close(parts.weight, whole.weight, rtol=0, atol=0)
    torch.testing.assert_close(
        several.optimizer.variables(), single.optimizer.variables(), rtol=0, atol=0
    )


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_the_loss_scale_changes_no_bit_of_an_update(limit) -> None:
    weights = []
    for scale in (1, 65536):
        model = model_in()
        trained(model, INPUTS.split(8), dtype="mixed", loss_scaling=scale, **limit)
        weights.append(model.weight)
    torch.testing.assert_close(*weights, rtol=0, atol=0)


def test_sparse_gradients_stay_sparse_when_they_are_added_up() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    nn.init.ones_(table.weight)
    step = ls.optimize_loss(
        lambda *ids: table(torch.tensor(ids)).sum(),
        "Momentum",
        {"momentum": 0.5},
        lambda step: 0.5,
        model=table,
        iter_size=2,
    )
    step(1, 3)
    assert step.accumulators[0].is_sparse
    step(3, 3)
    assert table.weight[:, 0].tolist() == [1.0, 0.75, 1.0, 0.25]


def multitask(parameters, learning_rate):
    return ls.MultitaskOptimizerWrapper(ls.AdamOptimizer(parameters, learning_rate))


def test_the_sum_is_judged_for_zero_not_each_micro_batch() -> None:
    weight = Parameter(torch.ones(2))
    step = ls.optimize_loss(
        lambda sign: sign * weight.sum(),
        multitask,
        None,
        rate,
        [("weight", weight)],
        iter_size=2,
    )
    step(1.0), step(-1.0)
    assert weight.tolist() == [1.0, 1.0]
    assert step.last_step.skipped == ("weight",)
    step(0.0), step(1.0)
    assert (weight != 1).all()


def test_the_sum_is_judged_for_infinities_and_the_scaler_moves_once() -> None:
    weight = Parameter(torch.ones(2).half())
    step = ls.optimize_loss(
        lambda factor: factor * weight.float().sum(),
        "SGD",
        {},
        rate,
        [("weight", weight)],
        dtype="mixed",
        loss_scaling="Backoff",
        clip_gradients=1.0,
        iter_size=2,
    )
    step(float("inf")), step(1.0)
    assert weight.tolist() == [1.0, 1.0]
    assert step.last_step.nonfinite == ("weight",)
    assert (step.scaler.state["iteration"], int(step.global_step)) == (1, 0)
    step(1.0), step(1.0)
    assert (weight != 1).all()
    assert (step.scaler.state["iteration"], int(step.global_step)) == (2, 1)


def test_an_absent_gradient_is_no_obstacle() -> None:
    used, unused = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    step = ls.optimize_loss(
        lambda: used.sum(),
        "Adam",
        {},
        rate,
        {"used": used, "unused": unused}.items(),
        clip_gradients=1.0,
        iter_size=2,
    )
    step(), step()
    assert unused.tolist() == [1.0, 1.0]
    assert step.last_step.skipped == ("unused",)
    assert step.last_step.reason == "1 of 2 variables updated"


def test_only_listed_parameters_are_trained() -> None:
    model = nn.Linear(2, 1)
    before = model.bias.detach().clone()
    step = step_of(model, var_list=[model.weight])
    step(torch.ones(4, 2))
    assert step.names == ["weight"]
    assert torch.equal(model.bias, before)


def test_frozen_parameters_of_a_model_are_left_out() -> None:
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    assert step_of(model).names == ["weight"]


def test_no_grad_is_read_or_written() -> None:
    model = model_in()
    model.weight.grad = torch.full((2, 3), torch.nan)
    step_of(model)(INPUTS)
    assert model.weight.isfinite().all()
    assert model.weight.grad.isnan().all()


def test_the_loss_is_that_before_the_update() -> None:
    weight = Parameter(torch.tensor(3.0))
    step = ls.optimize_loss(lambda: weight.square(), "SGD", {}, rate, [weight])
    value = step()
    assert value == 9 and not value.requires_grad


def test_the_rate_waits_with_the_steps() -> None:
    flags = iter([True, False, True, True, False])
    step = step_of(
        model_in(),
        learning_rate_decay_fn=lambda step: step + 0.5,
        iter_size=2,
        skip_update_ph=lambda: next(flags),
    )
    rates = []
    for _ in range(5):
        step(INPUTS)
        rates.append(float(step.learning_rate))
    assert rates == [0.5, 0.5, 1.5, 1.5, 1.5]
    assert step.global_step == 2


def test_the_flag_of_a_call_goes_before_that_of_the_step() -> None:
    step = step_of(model_in(), iter_size=2, skip_update_ph=torch.tensor(True))
    step(INPUTS), step(INPUTS)
    assert step.last_step.reason == "accumulated micro-batch 2 of 2"
    step(INPUTS, skip_update=False)
    assert step.global_step == 1


def test_the_function_of_the_step_cannot_move_it() -> None:
    step = step_of(model_in(), learning_rate_decay_fn=lambda step: step.add_(0.5 > 0))
    step(INPUTS)
    assert step.global_step == 1


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_optimizers_of_torch_are_trained_with_its_own_rules(make) -> None:
    ours, theirs = model_in(), model_in()
    step = step_of(ours, optimizer=make, optimizer_params={"weight_decay": 0.1})
    bare = make(theirs.parameters(), lr=0.1, weight_decay=0.1)
    for k in range(3):
        step(INPUTS)
        theirs.weight.grad = None
        theirs(INPUTS).sum(1).mean().backward()
        bare.param_groups[0]["lr"] = float(rate(k))
        bare.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=0, atol=0)


def test_an_optimizer_that_is_made_already_gets_the_rate_of_each_step() -> None:
    model = model_in()
    adam = ls.AdamOptimizer(model.named_parameters(), 0.5)
    step = step_of(model, optimizer=adam, optimizer_params=None, model=None)
    assert step.optimizer is adam and step.names == ["weight"]
    step(INPUTS)
    assert adam.param_groups[0]["lr"] == float(rate(torch.tensor(0)))


def test_the_callers_arguments_stay_as_they_were() -> None:
    given = {"weight_decay": 0.25}
    step_of(model_in(), optimizer="AdamW", optimizer_params=given)(INPUTS)
    assert given == {"weight_decay": 0.25}


def test_strict_scales_the_decay_of_a_dict_that_is_used_twice_twice() -> None:
    given, decays = {"weight_decay": 0.5}, []
    for _ in range(2):
        weight = Parameter(torch.ones(2))
        loss = weight.sum
        step = strict.optimize_loss(loss, "AdamW", given, lambda step: 0.5, [weight])
        step()
        decays.append(step.optimizer.param_groups[0]["weight_decay"])
    assert decays == [0.25, 0.125]
    now = given["weight_decay"]
    assert (float(now), 2 * now, now * torch.tensor(2.0)) == (0.125, 0.25, 0.25)
    assert (torch.tensor(2.0) * now).item() == 0.25


def test_strict_makes_a_scaler_that_it_does_not_use() -> None:
    weight = Parameter(torch.ones(2))
    arguments = (weight.sum, "SGD", {}, rate, [weight])
    assert strict.optimize_loss(*arguments, loss_scaling="Backoff").scaler is not None
    assert ls.optimize_loss(*arguments, loss_scaling="Backoff").scaler is None


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
    ({"optimizer": 3}, TypeError, "a int"),
    ({"optimizer": lambda params, lr: 3}, TypeError, "a int"),
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


def test_what_is_frozen_at_the_call_follows_only_if_it_was_named() -> None:
    for named in (False, True):
        model = nn.Linear(2, 1)
        model.bias.requires_grad_(False)
        step = ls.optimize_loss(
            lambda model=model: model(torch.ones(2)).sum(),
            "SGD",
            {},
            lambda step: 0.5,
            var_list=list(model.named_parameters()) if named else None,
            model=model,
        )
        start = model.bias.item()
        step()
        assert model.bias.item() == start
        model.bias.requires_grad_(True)
        step()
        assert (model.bias.item() != start) == named


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def loss(self) -> torch.Tensor:
        return self.layer(torch.ones(2)).sum()


@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_copy_whose_loss_is_the_originals_says_so(iter_size) -> None:
    model = Regression()
    options = {"model": model, "iter_size": iter_size}
    step = ls.optimize_loss(
        lambda: model.loss(), "Adam", {}, lambda step: 0.5, **options
    )
    twin = copy.deepcopy(step)
    told = "loss of a deepcopy may still be that of the original model: set step.loss"
    with pytest.raises(ValueError, match=told):
        for _ in range(iter_size):
            twin()
    weight, bias = twin.parameters
    twin.loss = lambda: (weight.sum() + bias).sum()
    before = weight.clone(), model.layer.weight.clone()
    for _ in range(iter_size):
        twin()
    assert not torch.equal(weight, before[0])
    assert torch.equal(model.layer.weight, before[1])


def test_a_copy_has_the_model_whose_method_is_the_loss() -> None:
    model = Regression()
    step = ls.optimize_loss(model.loss, "Adam", {}, lambda step: 0.5, model=model)
    twin = copy.deepcopy(step)
    before = model.layer.weight.clone()
    twin()
    assert torch.equal(model.layer.weight, before)
    assert not torch.equal(twin.parameters[0], before)


@pytest.mark.parametrize("conversion", ["half", "float"])
def test_a_model_that_is_converted_after_the_call_is_refused(conversion) -> None:
    model = nn.Linear(2, 1)
    if conversion == "float":
        model.half()
    step = ls.optimize_loss(
        lambda: model(torch.ones(2, dtype=model.weight.dtype)).float().sum(),
        "SGD",
        {},
        lambda step: 0.5,
        model=model,
        dtype="mixed",
    )
    step()
    getattr(model, conversion)()
    before = model.weight.clone()
    with pytest.raises(TypeError, match="convert the model first"):
        step()
    assert torch.equal(model.weight, before)
    assert step.global_step == 1
