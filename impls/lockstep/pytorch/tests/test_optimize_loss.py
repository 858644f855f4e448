"""Laws of ``optimize_loss``, its arguments, its models and its summaries."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from lockstep import pytorch as ls
from lockstep.errors import (
    ClipAndLarcError,
    LossNotCallableError,
    NotAnOptimizerError,
    OutOfRangeError,
    UnknownNameError,
    UnsupportedError,
    VarListError,
)
from lockstep.interface import NO_STEP
from lockstep.pytorch import optimize_loss
from lockstep.pytorch.tests.steps import INPUTS, model_in, rate, step_of
from lockstep.pytorch.tests.subjects import ALL

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
    step = optimize_loss(
        lambda *ids: table(torch.tensor(ids)).sum(),
        "Momentum",
        {"momentum": 0.5},
        0.5,
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
    step(float("inf"))
    assert not step.last_step.applied
    step(1.0)
    assert weight.tolist() == [1.0, 1.0]
    assert step.last_step.nonfinite == ("weight",)
    assert (step.scaler.state["iteration"], int(step.global_step)) == (1, 0)
    step(1.0), step(1.0)
    assert (weight != 1).all()
    assert (step.scaler.state["iteration"], int(step.global_step)) == (2, 1)


def test_clipping_blames_only_the_gradient_that_is_not_finite() -> None:
    good, bad = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    step = optimize_loss(
        lambda: good.sum() + float("inf") * bad.sum(),
        "SGD",
        {},
        rate,
        [("good", good), ("bad", bad)],
        dtype="mixed",
        loss_scaling=8.0,
        clip_gradients=1.0,
    )
    step()
    assert step.last_step.nonfinite == ("bad",)


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


def stepping(loss: Any, weight: Parameter, rate: Any = 0.5, **options: Any) -> Any:
    return optimize_loss(loss, "SGD", {}, rate, [weight], **options)


@pytest.mark.parametrize("options", [{}, {"iter_size": 2}, {"dtype": "mixed"}], ids=str)
def test_a_loss_with_extras_makes_the_step_return_a_tuple(options: Any) -> None:
    weight = Parameter(torch.tensor([2.0]))

    def loss(name: str) -> tuple[Any, ...]:
        value = weight.square().sum()
        return value, value * 3, name

    step = stepping(loss, weight, **options)
    for expected in (4.0, 0.0) if "iter_size" not in options else (4.0, 4.0, 0.0):
        value, triple, name = step("a batch")
        assert (value.item(), triple.item(), name) == (
            expected,
            3 * expected,
            "a batch",
        )
        assert not value.requires_grad
        assert not triple.requires_grad


def test_a_number_is_a_rate_that_never_changes() -> None:
    weight = Parameter(torch.tensor([2.0]))
    step = stepping(lambda: weight.sum(), weight, rate=0.5)
    step()
    step()
    assert (weight.item(), step.learning_rate) == (1.0, 0.5)


def test_before_the_first_call_the_last_step_is_that_there_was_none() -> None:
    weight = Parameter(torch.ones(1))
    step = stepping(lambda: weight.sum(), weight)
    assert step.last_step == NO_STEP
    step()
    step.load_state_dict(step.state_dict())
    assert step.last_step == NO_STEP


def in_groups(parameters, lr):
    """Decay matrices, and nothing else."""
    matrices = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, weight_decay=0.1)


def test_a_function_chooses_groups_among_bare_parameters() -> None:
    model = nn.Linear(2, 1)
    step = step_of(model, optimizer=in_groups, optimizer_params=None)
    groups = step.optimizer.param_groups
    assert [group["param_names"] for group in groups] == [["weight"], ["bias"]]


def test_a_stack_that_a_function_made_speaks_of_parameters_by_name() -> None:
    def stack(parameters, learning_rate):
        sgd = ls.GradientDescentOptimizer(parameters, learning_rate)
        return ls.MultitaskOptimizerWrapper(sgd)

    model = nn.Linear(2, 1)
    step = ls.optimize_loss(
        lambda: 0 * model.weight.sum() + model.bias.sum(),
        stack,
        None,
        lambda step: 0.1,
        model=model,
    )
    step()
    assert step.last_step.skipped == ("weight",)


def test_the_pipeline_of_a_step_is_its_own() -> None:
    step = step_of(nn.Linear(2, 1), iter_size=2, clip_gradients=1.0)
    expected = ("accumulate", "norm", "clip", "update")
    assert ls.pipeline_of(step) == step.pipeline == expected
    assert ls.pipeline_of(torch.optim.SGD([weight], lr=0.1)) == ("update",)


def stack(parameters, learning_rate):
    sgd = ls.GradientDescentOptimizer(parameters, learning_rate)
    return ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0, clip_norm=1.0)


def two_rates():
    groups = [{"params": [Parameter(torch.ones(1))], "lr": r} for r in (0.1, 0.2)]
    return torch.optim.SGD(groups)


weight = Parameter(torch.ones(3))
OTHER = torch.optim.SGD([Parameter(torch.ones(1))], lr=0.1)
REFUSED = [
    ({"optimizer": "Momentun"}, UnknownNameError),
    ({"optimizer": "NovoGrad"}, UnknownNameError),
    ({"optimizer": "Momentum"}, TypeError),
    ({"optimizer": "AdamW"}, KeyError),
    ({"optimizer_params": {"beta": 0.5}}, TypeError),
    ({"optimizer_params": {"learning_rate": 0.1}}, TypeError),
    ({"optimizer": 3}, NotAnOptimizerError),
    ({"optimizer": lambda params, lr: 3}, NotAnOptimizerError),
    ({"optimizer": lambda params, lr: torch.optim.SGD([weight], lr)}, ValueError),
    ({"optimizer": OTHER, "optimizer_params": {"a": 1}}, NotAnOptimizerError),
    ({"optimizer": OTHER}, UnsupportedError),
    ({"optimizer": OTHER, "var_list": [weight]}, UnsupportedError),
    ({"optimizer": two_rates(), "model": None}, UnsupportedError),
    ({"optimizer": stack, "larc_params": {"larc_eta": 0.1}}, ClipAndLarcError),
    ({"clip_gradients": 1.0, "larc_params": {"larc_eta": 0.1}}, ClipAndLarcError),
    ({"optimizer": stack, "dtype": "mixed"}, UnsupportedError),
    ({"summaries": ["learning_rat"]}, UnknownNameError),
    ({"dtype": torch.float64}, UnknownNameError),
    ({"dtype": "mixed", "loss_scaling": "Bakoff"}, UnknownNameError),
    ({"dtype": "mixed", "loss_scaling": 0.0}, ValueError),
    ({"dtype": "mixed", "loss_scaling_params": {"scale_max": 8.0}}, UnsupportedError),
    ({"loss_scaling": "Backoff"}, UnsupportedError),
    ({"clip_gradients": 0.0}, OutOfRangeError),
    ({"larc_params": {}}, OutOfRangeError),
    ({"iter_size": 2.0}, OutOfRangeError),
    ({"learning_rate_decay_fn": lambda step: -0.1}, ValueError),
    ({"learning_rate_decay_fn": "poly_decay"}, ValueError),
    ({"learning_rate_decay_fn": True}, ValueError),
    ({"learning_rate_decay_fn": ls.lr_policies.poly_decay}, TypeError),
    ({"model": None}, ValueError),
    ({"model": nn.ReLU()}, ValueError),
    ({"var_list": 3}, TypeError),
    ({"var_list": [3]}, VarListError),
    ({"var_list": [("w", 3)]}, VarListError),
    ({"var_list": weight}, VarListError),
]


@pytest.mark.parametrize(("options", "error"), REFUSED)
def test_what_cannot_work_is_refused(options, error) -> None:
    given = {"optimizer": "SGD", "optimizer_params": {}, **options}
    with pytest.raises(error):
        step_of(model_in(), **given)


def test_a_loss_that_is_there_already_is_refused() -> None:
    with pytest.raises(LossNotCallableError):
        optimize_loss(weight.sum(), "SGD", {}, rate, [weight])


@pytest.mark.parametrize("flag", ["False", 2, torch.tensor([True, False])], ids=str)
def test_a_flag_that_is_none_adds_nothing(flag) -> None:
    step = step_of(model_in(), iter_size=2, skip_update_ph=lambda: flag)
    with pytest.raises(OutOfRangeError):
        step(INPUTS)
    assert step.micro_step == 0 and step.accumulators == [None]


def test_a_bad_rate_is_noticed_before_anything_changes() -> None:
    model = model_in()
    before = model.weight.detach().clone()
    step = step_of(model, learning_rate_decay_fn=lambda step: 0.1 if step < 1 else -1)
    step(INPUTS)
    after = model.weight.detach().clone()
    with pytest.raises(ValueError, match="finite rate"):
        step(INPUTS)
    assert torch.equal(model.weight, after) and not torch.equal(after, before)


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

    def half_loss(self) -> torch.Tensor:
        return self.layer(torch.ones(2).half()).float().square().sum()


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


def with_masters(parameters, name: str) -> ls.MixedPrecisionOptimizerWrapper:
    return ls.MixedPrecisionOptimizerWrapper(ALL[name](parameters), 8.0)


@pytest.mark.parametrize("passed", ["nothing", "model", "list", "maker"])
@pytest.mark.parametrize("name", ["SGD", "Adam fused"])
def test_an_optimizer_with_masters_trains_as_with_mixed(passed, name) -> None:
    model, other = Regression().half(), Regression().half()
    other.load_state_dict(model.state_dict())
    optimizer = with_masters(model.named_parameters(), name)
    options = {
        "nothing": {},
        "model": {"model": model},
        "list": {"var_list": model.named_parameters()},
        "maker": {"model": model},
    }[passed]
    if passed == "maker":
        model.load_state_dict(other.state_dict())
        optimizer = lambda parameters, lr: with_masters(parameters, name)  # noqa: E731
    step = ls.optimize_loss(model.half_loss, optimizer, None, 0.01, **options)
    expected = ls.optimize_loss(
        other.half_loss,
        lambda parameters, lr: ALL[name](parameters),
        None,
        0.01,
        model=other,
        dtype="mixed",
        loss_scaling=8.0,
    )
    for _ in range(3):
        assert torch.equal(step(), expected())
    assert torch.equal(model.layer.weight, other.layer.weight)
    assert step.names[0] in ("layer.weight", "param_groups[0]['params'][0]")
