"""A saved state of another stack is refused in a sentence, and nothing has changed."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch.nn import Parameter

from lockstep.messages.base import checkpoints
from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.base.foreign_state import LAYOUT
from lockstep.pytorch.tests.masters.models import everything, mixed, train
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, snapshot
from lockstep.pytorch.tests.subjects import train as train_plain


def rows(opt):
    """Clip the rows of the first matrix, which has no master."""
    limits = [p for p in opt.param_groups[0]["params"] if p.dim() == 2]
    return VariableClippingOptimizer(opt, {limits[0]: [1]}, 0.25)


def scaled(opt):
    return MixedPrecisionLossScaleOptimizer(opt, DynamicLossScale(4.0, 2))


def masters(opt):
    return MixedPrecisionOptimizerWrapper(opt, DynamicLossScale(4.0, 2))


WRAPPERS = {
    "masters": masters,
    "multitask": MultitaskOptimizerWrapper,
    "multitask scaled": lambda opt: MultitaskOptimizerWrapper(scaled(opt)),
    "rows": rows,
    "scaled": scaled,
    "scaled rows": lambda opt: scaled(rows(opt)),
}
everyone = pytest.mark.parametrize("wrapper", WRAPPERS)


def started(wrapper, name="Adam"):
    """Return a model that has taken two steps, and its optimizer."""
    model = TwoHeads()
    optimizer = WRAPPERS[wrapper](ALL[name](model.named_parameters()))
    train_plain(model, optimizer, "++")
    return model, optimizer


def assert_refuses(model, optimizer, saved, sentence):
    before = snapshot(model, optimizer), str(optimizer.param_groups)
    with pytest.raises(ValueError, match=sentence):
        optimizer.load_state_dict(saved)
    after = snapshot(model, optimizer)
    assert all(torch.equal(after[name], value) for name, value in before[0].items())
    assert str(optimizer.param_groups) == before[1]


@everyone
@pytest.mark.parametrize("name", ["Adam", "SGD momentum", "TF1 Adam", "Ftrl"])
def test_slots_of_another_shape_are_refused(wrapper, name):
    model, optimizer = started(wrapper, name)
    saved = copy.deepcopy(optimizer.state_dict())
    slots = saved["state"][2]
    key = next(k for k, v in slots.items() if isinstance(v, torch.Tensor) and v.dim())
    slots[key] = torch.zeros(7)
    sentence = rf"a saved '{key}' of shape \[2, 4\] for 'a.weight', got \[7\]"
    assert_refuses(model, optimizer, saved, sentence)


@everyone
@pytest.mark.parametrize("shape", [(7,), (3, 1), (2, 4), (1, 2)])
def test_means_over_rows_of_another_shape_are_refused(wrapper, shape):
    model, optimizer = started(wrapper, "Adafactor")
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][2]["row_var"] = torch.zeros(shape)
    got = re.escape(str(list(shape)))
    sentence = rf"a saved 'row_var' of shape \[2, 1\] for 'a.weight', got {got}"
    assert_refuses(model, optimizer, saved, sentence)


@everyone
def test_other_groups_are_refused(wrapper):
    model, optimizer = started(wrapper)
    other = torch.optim.Adam(model.body.parameters()).state_dict()
    assert_refuses(model, optimizer, other, r"groups with \[6\] parameters, got \[2\]")


@pytest.mark.parametrize("wrapper", [w for w in WRAPPERS if w != "masters"])
def test_masters_are_refused_by_who_trains_none(wrapper):
    half = mixed()
    trained = masters(ALL["Adam"](half.named_parameters()))
    train(half, trained, "++")
    model, optimizer = started(wrapper)
    saved = trained.state_dict()
    assert_refuses(model, optimizer, saved, "without float32 masters, got one for")


@pytest.mark.parametrize("wrapper", ["masters", "multitask scaled", "scaled rows"])
def test_a_later_layout_is_refused_and_an_older_one_is_read(wrapper):
    model, optimizer = started(wrapper)
    assert optimizer.param_groups[0][LAYOUT] == checkpoints.LAYOUT
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0][LAYOUT] = checkpoints.LAYOUT + 1
    assert_refuses(model, optimizer, saved, "of layout 1 or below, got 2")
    del saved["param_groups"][0][LAYOUT]
    optimizer.load_state_dict(saved)
    train_plain(model, optimizer, "+")
    assert optimizer.state_dict()["param_groups"][0][LAYOUT] == checkpoints.LAYOUT


SCALES = {
    "dynamic": lambda: DynamicLossScale(4.0, 2),
    "backoff": lambda: AutomaticLossScaler("Backoff", {"scale_max": 8.0}),
    "logmax": lambda: AutomaticLossScaler("LogMax", {"scale_max": 64.0}),
}


@pytest.mark.parametrize("saved", SCALES)
@pytest.mark.parametrize("loaded", SCALES)
def test_another_kind_of_scale_is_refused(saved, loaded):
    def made(scale):
        model = mixed()
        adam = ALL["Adam"](model.named_parameters())
        optimizer = MixedPrecisionOptimizerWrapper(adam, SCALES[scale]())
        train(model, optimizer, "+!")
        return model, optimizer

    state = made(saved)[1].state_dict()
    model, optimizer = made(loaded)
    before = everything(model, optimizer)
    if saved == loaded:
        optimizer.load_state_dict(state)
        return
    with pytest.raises(ValueError, match="give the wrapper the kind of loss scale"):
        optimizer.load_state_dict(state)
    after = everything(model, optimizer)
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_patience_may_be_given_to_a_run_that_had_none():
    model, optimizer = started("scaled")
    patient = DynamicLossScale(4.0, 2, hysteresis=2)
    adam = ALL["Adam"](model.named_parameters())
    other = MixedPrecisionLossScaleOptimizer(adam, patient)
    other.load_state_dict(optimizer.state_dict())
    assert other.loss_scale == optimizer.loss_scale
    optimizer.load_state_dict(other.state_dict())


@pytest.mark.parametrize("algorithm", ["Backoff", "LogMax"])
def test_an_automatic_scaler_belongs_to_one_optimizer(algorithm):
    scaler = AutomaticLossScaler(algorithm, {"scale_max": 64.0})
    first = MixedPrecisionOptimizerWrapper(ALL["SGD"](mixed().parameters()), scaler)
    base = ALL["SGD"](mixed().parameters())
    with pytest.raises(ValueError, match="a loss scale of its own"):
        MixedPrecisionOptimizerWrapper(base, scaler)
    assert "skipped_in_a_row" not in base.param_groups[0]
    twin = copy.deepcopy(scaler)
    other = MixedPrecisionOptimizerWrapper(base, twin)
    first.scale_object.move(False)
    copied = copy.deepcopy(first)
    copied.scale_object.move(False)
    each = (first, other, copied)
    counts = [opt.param_groups[0]["loss_scaler_iteration"] for opt in each]
    assert counts == [1, 0, 2]


class Counting(torch.optim.Optimizer):
    """Its state has a Python number, and after it a 0-d tensor in float32."""

    def __init__(self, params) -> None:
        super().__init__(params, {"lr": 1.0})

    def step(self, closure=None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["calls"] = state.get("calls", 0) + 1
            state["product"] = torch.tensor(0.1) ** state["calls"]


def test_a_number_after_others_in_a_state_keeps_its_dtype() -> None:
    saved, resumed = (
        MultitaskOptimizerWrapper(Counting([Parameter(torch.ones(2).half())]))
        for _ in range(2)
    )
    for parameter in saved.param_groups[0]["params"]:
        parameter.grad = torch.ones_like(parameter)
    saved.step()
    resumed.load_state_dict(saved.state_dict())
    (state,) = resumed.state.values()
    assert state["calls"] == 1
    assert state["product"].dtype == torch.float32
    assert state["product"] == torch.tensor(0.1)
