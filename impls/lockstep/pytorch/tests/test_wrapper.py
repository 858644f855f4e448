"""Every wrapper is an optimizer of torch, and has TensorFlow's methods besides."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.nn import Parameter
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from lockstep import pytorch
from lockstep.pytorch import (
    AdamOptimizer,
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.tests.subjects import (
    ALL,
    TF1,
    TORCH,
    TwoHeads,
    assert_same_bits,
    snapshot,
    train,
)
from lockstep.tests.wrappers import Layer, Parts, alone


def rows(opt: Optimizer) -> Optimizer:
    weights = {p: [1] for p in opt.param_groups[0]["params"] if p.dim() == 2}
    return VariableClippingOptimizer(opt, weights, max_norm=0.5)


def agn(opt: Optimizer) -> Optimizer:
    getter = AGNCustomGetter("cpu")
    getter(opt.param_groups[0]["params"])
    return AGNOptimizer(opt, 1, getter, communication_period=3)


def around(layer: Layer, opt: Optimizer) -> Optimizer:
    """Return a wrapper of the list that all tests read."""
    groups = getattr(opt, "param_groups", [])
    axes = {p: [1] for group in groups for p in group["params"] if p.dim() == 2}
    return layer(Parts(pytorch, opt, axes))


WRAPPERS: dict[str, Callable[[Optimizer], Optimizer]] = {
    **{name: partial(around, layer) for name, layer in alone(pytorch).items()},
    "stack": lambda o: MixedPrecisionLossScaleOptimizer(
        MultitaskOptimizerWrapper(rows(o)), 8.0
    ),
}
wrappers = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
everyone = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
some = pytest.mark.parametrize("make", [TORCH["SGD momentum"], TF1["Momentum"]])
INPUTS = torch.ones(2, 3)


def test_groups_state_and_defaults_are_those_of_the_wrapped_optimizer() -> None:
    for wrap in WRAPPERS.values():
        model = TwoHeads()
        wrapper = wrap(TORCH["Adam"](model.parameters()))
        inner = wrapper.inner_optimizer
        assert isinstance(wrapper, Optimizer)
        train(model, wrapper, "+")
        wrapper.load_state_dict(copy.deepcopy(wrapper.state_dict()))
        for name in ("param_groups", "state", "defaults"):
            assert getattr(wrapper, name) is getattr(inner, name)
        wrapper.param_groups[0]["lr"] = 0.25
        assert inner.param_groups[0]["lr"] == 0.25


@wrappers
def test_a_group_that_is_added_is_trained(wrap) -> None:
    model = TwoHeads()
    wrapper = wrap(torch.optim.SGD(model.body.parameters(), lr=0.1))
    wrapper.add_param_group({"params": model.a.parameters(), "lr": 0.5})
    train(model, wrapper, "++")
    assert not torch.equal(model.a.weight, TwoHeads().a.weight)
    assert torch.equal(model.b.weight, TwoHeads().b.weight)


@wrappers
@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_clears_the_gradients(wrap, set_to_none) -> None:
    model = TwoHeads()
    wrapper = wrap(TORCH["SGD"](model.parameters()))
    model(INPUTS, 1.0, 1.0).backward()
    wrapper.zero_grad(set_to_none)
    grads = [parameter.grad for parameter in model.parameters()]
    assert all(g is None if set_to_none else not g.any() for g in grads)


# -- hooks, copies, schedulers ---------------------------------------------------------


@wrappers
def test_step_hooks_fire_once_with_the_wrapper(wrap) -> None:
    model, seen = TwoHeads(), []
    wrapper = wrap(TORCH["SGD momentum"](model.parameters()))
    wrapper.register_step_pre_hook(lambda opt, *_: seen.append(("before", opt)))
    handle = wrapper.register_step_post_hook(lambda o, *_: seen.append(("after", o)))
    train(model, wrapper, "+")
    assert seen == [("before", wrapper), ("after", wrapper)]
    handle.remove()
    wrapper.minimize(lambda: model(INPUTS, 1.0, 1.0))
    assert seen[2:] == [("before", wrapper)]


def test_hooks_of_all_optimizers_fire_with_the_wrapper_too() -> None:
    model, seen = TwoHeads(), []
    wrapper = MultitaskOptimizerWrapper(TORCH["SGD momentum"](model.parameters()))
    handles = [
        register_optimizer_step_pre_hook(lambda opt, *_: seen.append(opt)),
        register_optimizer_step_post_hook(lambda opt, *_: seen.append(opt)),
    ]
    try:
        train(model, wrapper, "+")
    finally:
        for handle in handles:
            handle.remove()
    inner = wrapper.inner_optimizer
    assert [id(opt) for opt in seen] == list(map(id, [wrapper, inner, inner, wrapper]))


def test_a_hook_may_replace_the_closure() -> None:
    model, seen = TwoHeads(), []
    wrapper = MultitaskOptimizerWrapper(TORCH["SGD momentum"](model.parameters()))
    wrapper.register_step_pre_hook(
        lambda opt, args, kwargs: ((opt, lambda: seen.append(1)), kwargs)
    )
    wrapper.step()
    wrapper.step(lambda: seen.append(2))
    assert seen == [1, 1]


@wrappers
def test_state_dict_hooks_fire_once_with_the_wrapper_and_may_replace_it(wrap) -> None:
    model, seen = TwoHeads(), []
    wrapper = wrap(TORCH["SGD momentum"](model.parameters()))
    train(model, wrapper, "+")
    wrapper.register_state_dict_pre_hook(seen.append)
    wrapper.register_state_dict_post_hook(lambda opt, state: {**state, "extra": opt})
    state = wrapper.state_dict()
    assert seen == [wrapper]
    assert state.pop("extra") is wrapper

    def rate_of_one(opt, state):
        seen.append(opt)
        groups = [{**group, "lr": 1.0} for group in state["param_groups"]]
        return {**state, "param_groups": groups}

    wrapper.register_load_state_dict_pre_hook(rate_of_one)
    wrapper.register_load_state_dict_post_hook(seen.append)
    wrapper.load_state_dict(state)
    assert seen == [wrapper] * 3
    assert wrapper.param_groups[0]["lr"] == 1.0


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
@wrappers
@some
def test_a_copy_goes_on_as_the_original_does(make, wrap, copied) -> None:
    model = TwoHeads()
    wrapper = wrap(make(model.parameters()))
    train(model, wrapper, "+a")
    other, twin = copied((model, wrapper))
    train(model, wrapper, "ab0+")
    train(other, twin, "ab0+")
    assert_same_bits(snapshot(other, twin), snapshot(model, wrapper))
    assert twin.inner_optimizer is not wrapper.inner_optimizer


def test_a_copy_has_no_hooks_as_in_torch() -> None:
    seen = []
    wrapper = MultitaskOptimizerWrapper(TORCH["SGD"](TwoHeads().parameters()))
    wrapper.register_step_pre_hook(lambda *_: seen.append(1))
    copy.deepcopy(wrapper).step()
    assert seen == []


SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 1, gamma=0.5),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=30),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, step_size_up=3),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [lr_scheduler.ConstantLR(o, 0.1, 2), lr_scheduler.ExponentialLR(o, 0.5)],
        [2],
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULERS.values(), ids=SCHEDULERS)
@some
def test_a_scheduler_drives_the_rate(make, schedule) -> None:
    bare, ours = TwoHeads(), TwoHeads()
    optimizer = make(bare.parameters())
    wrapper = MultitaskOptimizerWrapper(make(ours.parameters()))
    one, two = schedule(optimizer), schedule(wrapper)
    for _ in range(6):
        train(bare, optimizer, "+")
        train(ours, wrapper, "+")
        one.step()
        two.step()
        assert wrapper.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert_same_bits(snapshot(ours, wrapper), snapshot(bare, optimizer))


@wrappers
def test_a_scheduler_still_drives_the_rate_after_load_state_dict(wrap) -> None:
    model = TwoHeads()
    wrapper = wrap(TORCH["SGD momentum"](model.parameters()))
    plateau = lr_scheduler.ReduceLROnPlateau(wrapper, factor=0.5, patience=0)
    train(model, wrapper, "+")
    wrapper.load_state_dict(copy.deepcopy(wrapper.state_dict()))
    for _ in range(3):
        plateau.step(1.0)
    assert wrapper.inner_optimizer.param_groups[0]["lr"] == 0.025


@wrappers
def test_minimize_counts_as_a_step_for_schedulers(wrap) -> None:
    model = TwoHeads()
    wrapper = wrap(TORCH["SGD"](model.parameters()))
    scheduler = lr_scheduler.StepLR(wrapper, 1)
    wrapper.minimize(lambda: model(INPUTS, 1.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()


@pytest.mark.parametrize("make", [TORCH["Adam fused"], TORCH["SGD"], TF1["TF1 Adam"]])
def test_grad_scaler_scales_around_it_and_skips_overflow(make) -> None:
    bare, ours = TwoHeads(), TwoHeads()
    optimizer = make(bare.parameters())
    wrapper = MultitaskOptimizerWrapper(make(ours.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    train(bare, optimizer, "+++")
    generator = torch.Generator().manual_seed(0)
    for k in range(4):
        if k != 1:
            inputs = torch.randn(2, 3, generator=generator)
        wrapper.zero_grad()
        loss = ours(inputs, 1.0, 1.0) * (torch.inf if k == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(wrapper)
        scaler.update()
    assert_same_bits(snapshot(ours, wrapper), snapshot(bare, optimizer))
    assert scaler.get_scale() == 2.0**9


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dynamo's own
@pytest.mark.parametrize("make", [TORCH["Adam"], TF1["TF1 Adam"]])
def test_a_compiled_training_step_gives_the_same_bits(make) -> None:
    plain, compiled = TwoHeads(), TwoHeads()
    optimizer = MultitaskOptimizerWrapper(make(plain.parameters()))
    other = MultitaskOptimizerWrapper(make(compiled.parameters()))

    @torch.compile(backend="eager")
    def step(inputs, weight):
        other.zero_grad()
        compiled(inputs, 1.0, weight).backward()
        other.step()

    for k in range(4):
        weight = float(k % 2)
        optimizer.zero_grad()
        plain(INPUTS, 1.0, weight).backward()
        optimizer.step()
        step(INPUTS, weight)
    torch.compiler.reset()
    assert_same_bits(snapshot(compiled, other), snapshot(plain, optimizer))


# -- attributes and closures -----------------------------------------------------------


class TwoPhase(torch.optim.SGD):
    """Steps by ``half_step`` twice, and swaps its weights for an evaluation."""

    rho = 0.5
    mode = "train"

    def half_step(self) -> None:
        super().step()

    def train(self) -> None:
        self.mode = "train"

    def eval(self) -> None:
        self.mode = "eval"


@wrappers
def test_values_are_forwarded_and_another_stepping_method_is_not(wrap) -> None:
    weight = Parameter(torch.ones(2))
    wrapper = wrap(TwoPhase([weight], lr=0.1))
    weight.grad = torch.ones(2)
    assert not hasattr(wrapper, "half_step")
    with pytest.raises(AttributeError, match=r"inner_optimizer\.half_step"):
        wrapper.half_step()
    assert weight.tolist() == [1.0, 1.0]
    assert wrapper.rho == 0.5
    wrapper.eval()
    assert wrapper.mode == "eval"
    with pytest.raises(AttributeError, match=f"'{type(wrapper).__name__}' object has"):
        wrapper.rh0  # noqa: B018


class NeedsClosure(torch.optim.SGD):
    """Takes no closure by default, and fails without one, as SAM does."""

    def step(self, closure=None):
        if closure is None:
            raise RuntimeError("requires closure, but it was not provided")


@wrappers
def test_an_optimizer_that_calls_its_closure_itself_is_refused(wrap) -> None:
    weight = Parameter(torch.ones(2))
    with pytest.raises(ValueError, match="LBFGS, which evaluates its closure"):
        wrap(torch.optim.LBFGS([weight]))

    def closure() -> torch.Tensor:
        weight.grad = torch.ones(2)
        return weight.sum()

    wrapper = wrap(NeedsClosure([weight], lr=0.1))
    with pytest.raises(ValueError, match="NeedsClosure, which evaluates its closure"):
        wrapper.step(closure)
    assert weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("wrong", [None, 3, torch.optim.SGD, "SGD"])
@pytest.mark.parametrize("name", ["multitask", "dynamic", "masters-dynamic"])
def test_what_is_no_optimizer_is_refused(name, wrong) -> None:
    with pytest.raises((TypeError, ValueError), match=r"a torch\.optim\.Optimizer, go"):
        WRAPPERS[name](wrong)


# -- TensorFlow's methods --------------------------------------------------------------

SUBJECTS = {
    "TF1 Adam": TF1["TF1 Adam"],
    **{f"Adam, {n}": lambda p, w=w: w(TORCH["Adam"](p)) for n, w in WRAPPERS.items()},
}
subjects = pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)


@subjects
def test_minimize_is_backward_and_step(make) -> None:
    one, two, three = TwoHeads(), TwoHeads(), TwoHeads()
    optimizer, other = make(one.parameters()), make(two.parameters())
    third = make(three.parameters())
    for _ in range(3):
        optimizer.minimize(lambda: one(INPUTS, 1.0, 2.0))
        third.minimize(three(INPUTS, 1.0, 2.0))
        other.zero_grad()
        two(INPUTS, 1.0, 2.0).backward()
        other.step()
    assert_same_bits(snapshot(one, optimizer), snapshot(two, other))
    assert_same_bits(snapshot(three, third), snapshot(two, other))


@subjects
def test_compute_gradients_pairs_every_parameter_and_touches_no_grad(make) -> None:
    model = TwoHeads()
    model.a.bias.requires_grad_(False)
    optimizer = make(model.parameters())
    model.body.weight.grad = torch.full((4, 3), 7.0)
    pairs = optimizer.compute_gradients(lambda: model(INPUTS, 1.0, 0.0))
    assert [variable for _, variable in pairs] == list(model.parameters())
    absent = [gradient is None for gradient, _ in pairs]
    assert absent == [False, False, False, True, False, False]
    assert model.body.weight.grad.eq(7.0).all()
    assert model.body.bias.grad is None


@pytest.mark.parametrize("name", SUBJECTS)
def test_compute_gradients_works_under_no_grad(name) -> None:
    weight = Parameter(torch.ones(1))
    with torch.no_grad():
        optimizer = SUBJECTS[name]([weight])
        [(gradient, _)] = optimizer.compute_gradients(lambda: (3 * weight).sum())
    assert gradient.item() == 3.0


@subjects
def test_compute_gradients_takes_a_list_and_an_upstream_gradient(make) -> None:
    weight, other = Parameter(torch.tensor([1.0, 2.0])), Parameter(torch.ones(1))
    optimizer = make([weight, other])
    [(gradient, variable)] = optimizer.compute_gradients(
        lambda: weight * weight, [weight], grad_loss=torch.tensor([1.0, 10.0])
    )
    assert variable is weight
    assert gradient.tolist() == [2.0, 40.0]
    [(gradient, _)] = optimizer.compute_gradients(weight.sum(), [weight], grad_loss=3)
    assert gradient.tolist() == [3.0, 3.0]
    assert optimizer.compute_gradients(torch.ones(()), [other]) == [(None, other)]


@subjects
def test_apply_gradients_moves_the_named_parameters_only_and_restores_grad(
    make,
) -> None:
    model = TwoHeads()
    optimizer = make(model.parameters())
    grads = [torch.full_like(p, 5.0) for p in model.parameters()]
    for parameter, gradient in zip(model.parameters(), grads, strict=True):
        parameter.grad = gradient
    before = model.b.bias.detach().clone()
    given = torch.ones(2, 4)
    optimizer.apply_gradients(iter([(given, model.a.weight)]))
    after = [parameter.grad for parameter in model.parameters()]
    assert all(a is b for a, b in zip(after, grads, strict=True))
    assert torch.equal(model.b.bias, before)
    assert not torch.equal(model.a.weight, TwoHeads().a.weight)
    assert given.eq(1).all()


@wrappers
def test_given_gradients_are_not_changed_by_nesterovs_momentum(wrap) -> None:
    """torch's SGD adds the momentum to them if it updates all tensors at once."""
    trained = []
    for foreach in (False, True):
        weight, given = Parameter(torch.ones(2)), torch.tensor([1.0, 2.0])
        sgd = torch.optim.SGD([weight], 0.5, 0.5, nesterov=True, foreach=foreach)
        wrap(sgd).apply_gradients([(given, weight)])
        assert given.tolist() == [1.0, 2.0]
        trained.append(weight.tolist())
    assert trained[0] == trained[1]


@subjects
def test_the_global_step_counts(make) -> None:
    model, counter = TwoHeads(), torch.zeros((), dtype=torch.int64)
    optimizer = make(model.parameters())
    optimizer.minimize(lambda: model(INPUTS, 1.0, 1.0), counter)
    optimizer.minimize(lambda: model(INPUTS, 1.0, 1.0), global_step=counter)
    assert counter == 2


SLOTS = {
    "SGD momentum": ["momentum"],
    "Adam amsgrad": ["m", "v", "max_exp_avg_sq"],
    "NAdam": ["m", "v"],
    "Adagrad": ["accumulator"],
    "RMSprop": ["rms", "momentum", "mg"],
}


@pytest.mark.parametrize(("name", "slots"), SLOTS.items(), ids=SLOTS)
def test_slots_of_torch_optimizers_have_tf_names(name, slots) -> None:
    model = TwoHeads()
    inner = TORCH[name](model.parameters())
    wrapper = MultitaskOptimizerWrapper(MultitaskOptimizerWrapper(inner))
    train(model, wrapper, "+")
    assert sorted(wrapper.get_slot_names()) == sorted(slots)
    for slot in slots:
        found = wrapper.get_slot(model.a.weight, slot)
        assert any(found is value for value in inner.state[model.a.weight].values())
        assert any(found is value for value in wrapper.variables())
    assert wrapper.get_slot(model.a.weight, "no such slot") is None
    assert wrapper.get_slot(Parameter(torch.ones(1)), slots[0]) is None


def test_names() -> None:
    parameter = Parameter(torch.ones(1))
    adam = AdamOptimizer([parameter], name="mine")
    assert MultitaskOptimizerWrapper(adam).get_name() == "mine"
    sgd = torch.optim.SGD([parameter], lr=0.1)
    assert MultitaskOptimizerWrapper(sgd).get_name() == "SGD"
    assert [adam.GATE_NONE, adam.GATE_OP, adam.GATE_GRAPH] == [0, 1, 2]


STRANGER = Parameter(torch.ones(2))
ONES = torch.ones(2)
BAD_PAIRS = {
    "no iterable": (lambda w, v: 3, TypeError, "an iterable of"),
    "no pairs": (lambda w, v: [ONES], TypeError, "got Tensor at position 0"),
    "turned around": (lambda w, v: [(w, "w")], TypeError, "gradient first"),
    "an array": (
        lambda w, v: [(ONES.numpy(), w)],
        TypeError,
        "got ndarray at position 0",
    ),
    "empty": (lambda w, v: [], ValueError, "got an empty list"),
    "all absent": (lambda w, v: [(None, w)], ValueError, "None for every one of w"),
    "a stranger": (lambda w, v: [(ONES, STRANGER)], ValueError, "add_param_group"),
    "named twice": (lambda w, v: [(ONES, w), (ONES, w)], ValueError, "'w' twice"),
    "shape": (lambda w, v: [(ONES, w), (ONES, v)], ValueError, "shape .* for 'v'"),
    "dtype": (
        lambda w, v: [(ONES, w), (torch.ones(3).double(), v)],
        TypeError,
        "dtype .* for 'v', got",
    ),
    "device": (
        lambda w, v: [(ONES, w), (torch.ones(3, device="meta"), v)],
        ValueError,
        "cpu for 'v', got meta",
    ),
}
BAD_COUNTERS = {
    "a number": 0,
    "a float": torch.zeros(()),
    "a vector": torch.zeros(1, dtype=torch.int64),
    "a bool": torch.tensor(False),
}


@subjects
@pytest.mark.parametrize(("pairs", "error", "words"), BAD_PAIRS.values(), ids=BAD_PAIRS)
def test_bad_pairs_change_nothing(make, pairs, error, words) -> None:
    w, v = Parameter(torch.ones(2)), Parameter(torch.ones(3))
    optimizer = make([("w", w), ("v", v)])
    counter = torch.zeros((), dtype=torch.int64)
    with pytest.raises(error, match=words):
        optimizer.apply_gradients(pairs(w, v), counter)
    assert w.eq(1).all()
    assert v.eq(1).all()
    assert (counter, w.grad, v.grad) == (0, None, None)


@subjects
@pytest.mark.parametrize("counter", BAD_COUNTERS.values(), ids=BAD_COUNTERS)
def test_a_bad_global_step_is_refused_before_any_change(make, counter) -> None:
    weight = Parameter(torch.ones(2))
    optimizer = make([weight])
    for attempt in (
        lambda: optimizer.apply_gradients([(ONES, weight)], counter),
        lambda: optimizer.minimize(lambda: weight.sum(), counter),
    ):
        with pytest.raises(TypeError, match="global_step to be None or a 0-d integer"):
            attempt()
    assert weight.eq(1).all()


BAD_ARGUMENTS = {
    "a number": ({"loss": 3.0}, TypeError),
    "a function of numbers": ({"loss": lambda: 3.0}, TypeError),
    "a vector": ({"loss": lambda: STRANGER * 2}, ValueError),
    "a complex loss": ({"loss": lambda: STRANGER.sum() * 1j}, ValueError),
    "names": ({"var_list": ["w"]}, ValueError),
    "no list": ({"var_list": STRANGER}, TypeError),
    "gate": ({"gate_gradients": 3}, ValueError),
    "method": ({"aggregation_method": 9}, ValueError),
}


@subjects
@pytest.mark.parametrize(
    ("arguments", "error"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS
)
def test_a_bad_argument_of_compute_gradients_is_refused(make, arguments, error) -> None:
    weight = Parameter(torch.ones(2))
    arguments = {"loss": lambda: weight.sum(), **arguments}
    with pytest.raises(error, match="expected"):
        make([weight]).compute_gradients(**arguments)


# -- state -----------------------------------------------------------------------------


class PerRow(Optimizer):
    """A second moment a row, in a slot named ``v``; perhaps a count by a string key."""

    def __init__(self, params, lr=0.1, key=None) -> None:
        super().__init__(params, {"lr": lr})
        self.key = key

    @torch.no_grad()
    def step(self, closure=None):
        if self.key:
            self.state[self.key] = self.state.get(self.key, torch.zeros(1)) + 1
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["v"] = state.get("v", 0.0) + p.grad.square().flatten(1).mean(1)
                p -= group["lr"] * p.grad / (state["v"].sqrt() + 1e-8)[:, None]


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("key", [None, "k"])
def test_the_state_of_any_optimizer_is_saved_and_loaded(name, key) -> None:
    wrap = WRAPPERS[name]

    def made():
        weight = Parameter(torch.ones(2, 3))
        return weight, wrap(PerRow([weight], key=key))

    (weight, optimizer), (other, twin) = made(), made()
    gradients = [torch.full((2, 3), g) for g in (1.0, -2.0, 0.5)]
    weight.grad = gradients[0]
    optimizer.step()
    other.data.copy_(weight)
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for gradient in gradients[1:]:
        weight.grad, other.grad = gradient.clone(), gradient.clone()
        optimizer.step()
        twin.step()
    assert torch.equal(weight, other)


NO_STATES = {
    "None": None,
    "a list": [],
    "a checkpoint": {"model": {}, "optimizer": {}},
    "fewer groups": {"state": {}, "param_groups": []},
    "other groups": {"state": {}, "param_groups": [{"params": [0]}]},
    "masters": {"state": {0: {"master": ONES}}, "param_groups": [{"params": range(6)}]},
}


@wrappers
@pytest.mark.parametrize("state", NO_STATES.values(), ids=NO_STATES)
def test_what_is_no_state_of_this_stack_is_refused(wrap, state) -> None:
    model = TwoHeads()
    wrapper = wrap(TORCH["Adam"](model.parameters()))
    if isinstance(wrapper, MixedPrecisionOptimizerWrapper) and "master" in str(state):
        pytest.skip("it has masters")
    train(model, wrapper, "+")
    before = snapshot(model, wrapper)
    with pytest.raises(ValueError):
        wrapper.load_state_dict(state)
    assert_same_bits(snapshot(model, wrapper), before)
