"""The state of another optimizer is refused in a sentence; an older one is loaded."""

from __future__ import annotations

import copy
from itertools import permutations

import pytest
import torch

from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.tests.subjects import ALL, OWN, TORCH, TwoHeads, snapshot, train


def shared(opt):
    getter = AGNCustomGetter("cpu")
    getter([p for group in opt.param_groups for p in group["params"]])
    return AGNOptimizer(opt, 1, getter, communication_period=1)


def rows(opt):
    return VariableClippingOptimizer(opt, {opt.param_groups[0]["params"][0]: [0]}, 1.0)


WRAPPERS = {
    "bare": lambda opt: opt,
    "masters": lambda opt: MixedPrecisionOptimizerWrapper(opt, 8.0),
    "multitask": MultitaskOptimizerWrapper,
    "rows": rows,
    "scaled": lambda opt: MixedPrecisionLossScaleOptimizer(opt, 8.0),
    "scaled, shared": lambda opt: MixedPrecisionLossScaleOptimizer(shared(opt), 8.0),
    "shared": shared,
}
OTHERS = ["Adam", "SGD momentum", "Adagrad", "TF1 Adam", "Momentum", "NovoGrad"]
PAIRS = [
    (wrapper, saved, ours)
    for wrapper in WRAPPERS
    for saved, ours in permutations(OTHERS, 2)
    if wrapper != "bare" or ours in OWN
]
everyone = pytest.mark.parametrize("wrapper", WRAPPERS)


def started(wrapper: str, name: str):
    """Return a model that has taken two steps, and its optimizer."""
    model = TwoHeads()
    optimizer = WRAPPERS[wrapper](ALL[name](model.named_parameters()))
    train(model, optimizer, "++")
    return model, optimizer


def assert_refuses(model, optimizer, saved, told: str) -> None:
    """A sentence comes, nothing changes and training goes on."""
    before = snapshot(model, optimizer), str(optimizer.param_groups)
    with pytest.raises(ValueError, match=told):
        optimizer.load_state_dict(saved)
    after = snapshot(model, optimizer)
    assert all(torch.equal(after[name], value) for name, value in before[0].items())
    assert str(optimizer.param_groups) == before[1]
    train(model, optimizer, "+")


@pytest.mark.parametrize(("wrapper", "saved", "ours"), PAIRS)
def test_the_state_of_another_rule_is_refused(wrapper, saved, ours) -> None:
    state = started(wrapper, saved)[1].state_dict()
    assert_refuses(*started(wrapper, ours), state, "expected a state of")


def test_the_slots_of_a_rule_that_has_fewer_numbers_are_refused() -> None:
    state = started("bare", "Momentum")[1].state_dict()
    told = "state of GradientDescentOptimizer, got one with momentum; load it into the"
    assert_refuses(*started("bare", "GradientDescent"), state, told)


NO_STATES = {
    "None": (None, "got None"),
    "an empty dict": ({}, "got an empty one"),
    "a list": ([], "got a list"),
    "a word": ("x", "got a str"),
    "no groups": ({"state": {}}, "got one of state;"),
    "a whole checkpoint": (
        {"model": {}, "optimizer": {}},
        "got one of model, optimizer",
    ),
    "no slots": ({"state": {0: None}, "param_groups": []}, "in another form"),
    "no list of groups": ({"state": {}, "param_groups": None}, "in another form"),
}


@everyone
@pytest.mark.parametrize("name", NO_STATES)
def test_what_is_no_state_is_one_sentence(wrapper, name) -> None:
    saved, got = NO_STATES[name]
    told = f"{got}.* if this is a whole checkpoint, pass its entry of the optimizer"
    assert_refuses(*started(wrapper, "TF1 Adam"), saved, told)


@pytest.mark.parametrize("name", OWN)
def test_a_rule_refuses_slots_of_other_names_and_shapes(name) -> None:
    model, optimizer = started("bare", name)
    whole = copy.deepcopy(optimizer.state_dict())
    if not whole["state"].get(2):
        assert name == "GradientDescent"
        return
    slot = next(iter(whole["state"][2]))
    for value in (torch.zeros(7), None):
        saved = copy.deepcopy(whole)
        saved["state"][2][slot] = value
        assert_refuses(model, optimizer, saved, f"a saved '{slot}' of shape")
    saved = copy.deepcopy(whole)
    saved["state"][2]["strange"] = saved["state"][2].pop(slot)
    assert_refuses(model, optimizer, saved, "the saved slots .* for 'a.weight', got")


@pytest.mark.parametrize("value", [None, "x", torch.ones(7)], ids=repr)
def test_a_master_that_is_none_is_refused(value) -> None:
    model = TwoHeads().half()
    adam = ALL["Adam"](model.named_parameters())
    optimizer = MixedPrecisionOptimizerWrapper(adam, 8.0)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["master"] = value
    before = str(optimizer.state_dict())
    with pytest.raises(ValueError, match="a saved 'master' of shape"):
        optimizer.load_state_dict(saved)
    assert str(optimizer.state_dict()) == before


@everyone
@pytest.mark.parametrize("name", ["Adam", "SGD", "SGD momentum", "NovoGrad", "Ftrl"])
def test_states_of_other_ages_are_loaded(wrapper, name) -> None:
    """Older and newer switches, keys of schedulers and users, slots that come late."""
    fresh = WRAPPERS[wrapper](ALL[name](TwoHeads().parameters())).state_dict()
    _, optimizer = started(wrapper, name)
    saved = copy.deepcopy(optimizer.state_dict())
    for group in saved["param_groups"]:
        group |= {"initial_lr": 0.1, "max_lr": 0.2, "of_a_later_torch": False}
        group |= {"name": "the body", "initial_weight_decay": 0.1, "layers": [1, 2]}
        for switch in ("foreach", "capturable", "fused", "decoupled_weight_decay"):
            group.pop(switch, None)
    model, optimizer = started(wrapper, name)
    for state in (saved, fresh):
        optimizer.load_state_dict(state)
        train(model, optimizer, "+")
        assert optimizer.param_groups[0].get("layers") == (
            [1, 2] if state is saved else None
        )


@pytest.mark.parametrize("name", TORCH)
def test_every_optimizer_of_torch_loads_its_own_state_through_a_wrapper(name) -> None:
    _, optimizer = started("multitask", name)
    model = TwoHeads()
    other = WRAPPERS["multitask"](ALL[name](model.named_parameters()))
    other.load_state_dict(optimizer.state_dict())
    train(model, other, "+")


@pytest.mark.parametrize("name", ALL)
def test_a_group_added_after_the_last_step_is_saved_and_loaded(name) -> None:
    model = TwoHeads()
    optimizer = MultitaskOptimizerWrapper(ALL[name](model.body.parameters()))
    train(model, optimizer, "+")
    optimizer.add_param_group({"params": list(model.a.parameters())})
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(model, optimizer, "+")
    assert optimizer.last_step.skipped == ()


class Counting(torch.optim.SGD):
    """An optimizer of others, which writes into its groups in training."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["steps_taken"] = group.get("steps_taken", 0) + 1
        return super().step(closure)


def test_what_an_optimizer_of_others_keeps_in_its_groups_is_loaded() -> None:
    model = TwoHeads()
    optimizer = OptimizerWrapper(Counting(model.parameters(), lr=0.1))
    train(model, optimizer, "++")
    other = OptimizerWrapper(Counting(TwoHeads().parameters(), lr=0.1))
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["steps_taken"] == 2


def test_a_hook_may_mend_a_state_before_it_is_judged() -> None:
    saved = started("bare", "NovoGrad")[1].state_dict()
    model, optimizer = started("bare", "NovoGrad")
    optimizer.register_load_state_dict_pre_hook(lambda _, state: state["optimizer"])
    optimizer.load_state_dict({"optimizer": saved})
    train(model, optimizer, "+")
