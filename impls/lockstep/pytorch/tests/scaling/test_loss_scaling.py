"""The loss-scale wrapper as torch's users meet it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.errors import ScaleStalledError
from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
)
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, assert_same_bits, snapshot


def started(name: str = "Adam", scale="dynamic", **options):
    model = TwoHeads()
    inner = ALL[name](model.named_parameters())
    return model, MixedPrecisionLossScaleOptimizer(inner, scale, **options)


def backward(model: TwoHeads, optimizer, weight: float = 1.0) -> None:
    optimizer.zero_grad()
    optimizer.scale_loss(model(torch.ones(2, 3), weight, weight)).backward()


def test_at_the_floor_it_can_raise_and_names_the_tensors() -> None:
    model, optimizer = started(scale=DynamicLossScale(2.0), at_floor="raise")
    before = snapshot(model, optimizer)
    with pytest.raises(ScaleStalledError, match=r"100 skipped.*a\.weight"):
        for _ in range(200):
            backward(model, optimizer)
            model.a.weight.grad[0, 0] = torch.nan
            optimizer.step()
    assert snapshot(model, optimizer).keys() >= before.keys()
    assert torch.equal(model.a.weight, before["a.weight"])


def test_300_zero_gradients_that_grow_the_scale_each_step_keep_it_finite() -> None:
    model, optimizer = started("SGD", DynamicLossScale(increment_period=1))
    for _ in range(300):
        optimizer.zero_grad()
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    assert torch.isfinite(optimizer.loss_scale)
    assert optimizer.loss_scale == 2.0**127


def test_gradients_are_divided_once_whatever_comes_first() -> None:
    found = []
    for way in ("plain", "step", "pairs", "again"):
        model, optimizer = started("SGD", 65536)
        parameters = list(model.parameters())
        if way in ("plain", "step"):
            loss = model(torch.ones(2, 3), 1.0, 1.0)
            (optimizer.scale_loss(loss) if way == "step" else loss).backward()
            optimizer.step()
        else:
            loss = lambda: model(torch.ones(2, 3), 1.0, 1.0)  # noqa: B023, E731
            if way == "again":
                loss = lambda: optimizer.scale_loss(model(torch.ones(2, 3), 1.0, 1.0))  # noqa: B023, E731
            optimizer.apply_gradients(optimizer.compute_gradients(loss, parameters))
        found.append(snapshot(model, optimizer))
    for other in found[1:]:
        assert_same_bits(other, found[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_losses_and_parameters_work(dtype: torch.dtype) -> None:
    weight = nn.Parameter(torch.ones(2, dtype=dtype))
    sgd = torch.optim.SGD([weight], lr=0.5)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 1024)
    optimizer.minimize(lambda: weight.sum())
    assert weight.tolist() == [0.5, 0.5]


def test_a_skipped_step_does_not_advance_the_global_step() -> None:
    weight, step = nn.Parameter(torch.ones(1)), torch.tensor(0)
    optimizer = MixedPrecisionLossScaleOptimizer(torch.optim.SGD([weight]), 8)
    optimizer.apply_gradients([(torch.tensor([torch.nan]), weight)], step)
    assert step == 0 and weight == 1
    optimizer.apply_gradients([(torch.ones(1), weight)], step)
    assert step == 1 and weight != 1


def test_a_step_without_gradients_is_legal_and_moves_nothing() -> None:
    _, optimizer = started(scale=DynamicLossScale(8.0, 1))
    optimizer.step()
    assert optimizer.loss_scale == 8


@pytest.mark.parametrize(
    "wrapper", [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]
)
def test_the_numbers_of_the_scale_are_in_the_first_group_alone(wrapper) -> None:
    groups = [{"params": [nn.Parameter(torch.ones(1))]} for _ in range(2)]
    sgd = torch.optim.SGD(groups, lr=1.0)
    keys = set(sgd.param_groups[0])
    first, second = wrapper(sgd, "dynamic").param_groups
    assert {"loss_scale", "skipped_steps", "skipped_in_a_row"} < set(first) - keys
    assert set(second) == keys


@pytest.mark.parametrize("algorithm", ["Backoff", "LogMax"])
def test_an_automatic_scaler_resumes(algorithm: str) -> None:
    scaler, fresh = AutomaticLossScaler(algorithm), AutomaticLossScaler(algorithm)
    for amax in (0.5, 3.0, torch.inf):
        scaler.update_op(False, torch.tensor(amax))
    fresh.load_state_dict(scaler.state_dict())
    for each in (scaler, fresh):
        each.update_op(False, torch.tensor(2.0))
    assert fresh.state == scaler.state
    with pytest.raises(ValueError, match="state of"):
        fresh.load_state_dict({"loss_scale": 1.0})


def test_a_loss_for_validation_keeps_what_training_left_to_divide() -> None:
    model, optimizer = started("SGD", 8)
    backward(model, optimizer)
    gradient = model.a.bias.grad.clone()
    with torch.no_grad():
        optimizer.scale_loss(model(torch.ones(2, 3), 1.0, 1.0))
    optimizer.step()
    assert torch.equal(model.a.bias.grad, gradient / 8)


def test_a_loss_that_depends_on_nothing_gives_no_gradients() -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = MixedPrecisionLossScaleOptimizer(torch.optim.SGD([weight]), 8)
    assert optimizer.compute_gradients(torch.ones(())) == [(None, weight)]


@pytest.mark.parametrize("capturable", [False, True])
def test_the_first_group_may_be_empty(capturable: bool) -> None:
    weight = nn.Parameter(torch.ones(2))
    groups = [{"params": []}, {"params": [weight]}]
    adam = torch.optim.Adam(groups, lr=0.5, fused=True)
    optimizer = MixedPrecisionLossScaleOptimizer(adam, 8, capturable=capturable)
    optimizer.scale_loss(weight.sum()).backward()
    optimizer.step()
    assert weight.tolist() == pytest.approx([0.5, 0.5])


def test_float64_gradients_are_divided_in_float64() -> None:
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = MixedPrecisionLossScaleOptimizer(sgd, 3)
    optimizer.scale_loss((weight * 7).sum()).backward()
    optimizer.step()
    # One rounding of the reciprocal and one of the product, 2**-53 each.
    assert weight.tolist() == pytest.approx([-7.0] * 3, rel=2**-52, abs=0)


@pytest.mark.parametrize("given", [np.float32(8), np.float64(8), np.int64(8), 8, 8.0])
def test_numbers_of_all_kinds_are_scales(given) -> None:
    assert started("SGD", given)[1].loss_scale == 8


@pytest.mark.parametrize("given", [True, math.nan, math.inf, np.float32("nan"), 0.5])
def test_what_is_no_number_for_a_scale_is_refused(given) -> None:
    with pytest.raises(ValueError, match=r"loss_scale.*: expected .*, got .*; .*\.$"):
        started("SGD", given)


SGD = torch.optim.SGD([nn.Parameter(torch.ones(1))])
DIFFERENTIABLE = torch.optim.SGD(
    [torch.nn.Parameter(torch.ones(2))], lr=0.1, differentiable=True
)
BAD = [
    (lambda: MixedPrecisionLossScaleOptimizer(3, 2.0), ValueError),
    (lambda: MixedPrecisionLossScaleOptimizer(SGD, None), TypeError),
    (lambda: MixedPrecisionLossScaleOptimizer(SGD, "static"), ValueError),
    (lambda: MixedPrecisionLossScaleOptimizer(SGD, 2, at_floor="stop"), ValueError),
    (lambda: MixedPrecisionLossScaleOptimizer(SGD, 2, floor_patience=0), ValueError),
    (lambda: MixedPrecisionLossScaleOptimizer(DIFFERENTIABLE, 2), ValueError),
    (lambda: MixedPrecisionOptimizerWrapper(DIFFERENTIABLE, 2), ValueError),
    (lambda: DynamicLossScale().update([torch.ones(2), 3.0]), TypeError),
    (lambda: FixedLossScale(0.5), ValueError),
    (lambda: FixedLossScale("8"), ValueError),
    (lambda: DynamicLossScale(0.0), ValueError),
    (lambda: DynamicLossScale(float("nan")), ValueError),
    (lambda: DynamicLossScale(increment_period=0), ValueError),
    (lambda: DynamicLossScale(multiplier=1.0), ValueError),
    (lambda: DynamicLossScale(8.0, floor=16.0), ValueError),
    (lambda: DynamicLossScale(8.0, ceiling=4.0), ValueError),
    (lambda: AutomaticLossScaler("Backof"), ValueError),
    (lambda: AutomaticLossScaler(params={"scale_max": True}), ValueError),
    (lambda: AutomaticLossScaler(params={"step_window": 8.0}), ValueError),
    (lambda: AutomaticLossScaler(params={"step_factor": 0.5}), ValueError),
    (lambda: AutomaticLossScaler(params={"step_window": 0}), ValueError),
    (
        lambda: AutomaticLossScaler(params={"scale_min": 8.0, "scale_max": 4.0}),
        ValueError,
    ),
    (lambda: AutomaticLossScaler("LogMax", {"beta1": 1.0}), ValueError),
    (lambda: AutomaticLossScaler("LogMax", {"log_max": float("nan")}), ValueError),
]


@pytest.mark.parametrize(("make", "error"), BAD)
def test_what_cannot_work_is_refused_in_a_sentence(make, error) -> None:
    with pytest.raises(error, match=r"expected .*, got .*[;,].*[.?]$"):
        make()


# Dynamo itself reads the .grad of the tensors that it passes from graph to graph.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")
@pytest.mark.parametrize("name", ["SGD", "SGD momentum", "Adam fused"])
@pytest.mark.parametrize("scale", ["dynamic", 8.0])
def test_a_compiled_training_step_gives_the_same_bits(scale, name) -> None:
    results = []
    for compiled in (False, True):
        model, optimizer = started(name, scale)

        def step(inputs, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            optimizer.scale_loss(model(inputs, 1.0, 0.5)).backward()
            optimizer.step()

        step = torch.compile(step, backend="eager") if compiled else step
        for seed in range(3):
            step(torch.full((2, 3), 0.5 + seed))
        results.append(snapshot(model, optimizer))
        torch.compiler.reset()
    assert_same_bits(*results)
