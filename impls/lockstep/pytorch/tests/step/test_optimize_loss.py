"""Laws of ``optimize_loss`` for PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from lockstep import pytorch as ls
from lockstep.pytorch.tests.steps import INPUTS, model_in, rate, step_of

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


def spoil_in_a_hook(optimizer, change):
    def hook(optimizer, args, kwargs):
        change(optimizer.param_groups[0]["params"][0])

    optimizer.register_step_pre_hook(hook)


def spoil_before_the_step(optimizer, change):
    step = optimizer.step

    def spoilt():
        change(optimizer.param_groups[0]["params"][0])
        return step()

    optimizer.step = spoilt


def fill(parameter):
    parameter.grad.fill_(torch.inf)


def fill_unseen(parameter):
    parameter.grad.data.fill_(torch.inf)


def replace(parameter):
    parameter.grad = torch.full_like(parameter, torch.inf)


@pytest.mark.parametrize(
    ("spoil", "change"),
    [
        (spoil_in_a_hook, fill_unseen),
        (spoil_before_the_step, fill),
        (spoil_before_the_step, replace),
    ],
)
def test_what_changes_gradients_after_clipping_is_judged(spoil, change) -> None:
    model = model_in()
    step = step_of(model, dtype="mixed", loss_scaling=8.0, clip_gradients=1.0)
    before = model.weight.detach().clone()
    spoil(step.optimizer, change)
    step(INPUTS)
    assert step.last_step.nonfinite == ("weight",)
    assert torch.equal(model.weight, before)


class Fixed(torch.autograd.Function):
    """A loss whose gradient is a tensor of somebody else."""

    @staticmethod
    def forward(ctx, weight, gradient):
        ctx.gradient = gradient
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx, scale):
        return ctx.gradient, None


def test_clipping_leaves_a_gradient_that_autograd_does_not_own() -> None:
    def multitask_around_a_scale(parameters, lr):
        sgd = torch.optim.SGD(parameters, lr)
        return ls.MultitaskOptimizerWrapper(ls.MixedPrecisionLossScaleOptimizer(sgd, 1))

    weight, gradient = Parameter(torch.zeros(2)), torch.tensor([3.0, 4.0])
    step = ls.optimize_loss(
        lambda: Fixed.apply(weight, gradient),
        multitask_around_a_scale,
        {},
        lambda step: 1.0,
        var_list=[weight],
        clip_gradients=2.5,
    )
    step()
    assert (gradient.tolist(), weight.tolist()) == ([3.0, 4.0], [-1.5, -2.0])


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
