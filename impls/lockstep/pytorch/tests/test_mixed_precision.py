"""Masters on PyTorch: what they keep, what a step says, what torch does with them."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint import state_dict as checkpoint
from torch.nn import Parameter
from torch.optim import lr_scheduler

from lockstep import pytorch
from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    mp_regularizer_wrapper,
    strict,
)
from lockstep.pytorch.regularizer import REGISTERED
from lockstep.pytorch.tests.subjects import ALL, TF1, TORCH, TwoHeads, batches

HALVES = [torch.float16, torch.bfloat16]
halves = pytest.mark.parametrize("dtype", HALVES, ids=str)
everyone = pytest.mark.parametrize("name", ALL)
some = pytest.mark.parametrize(
    "name", ["SGD", "SGD momentum", "Adam", "Adam fused", "TF1 Adam", "Momentum"]
)
SCALES = {
    "none": lambda: None,
    "number": lambda: 8,
    "dynamic": lambda: DynamicLossScale(4.0, 2),
    "backoff": lambda: AutomaticLossScaler("Backoff", {"scale_max": 8.0}),
    "logmax": lambda: AutomaticLossScaler("LogMax", {"scale_max": 64.0}),
}


def mixed(dtype=torch.float16):
    """Return a model of which one head stays in float32."""
    model = TwoHeads().to(dtype)
    model.b.float()
    return model


def loss_of(model, inputs, letter="+"):
    """Return the loss of a model some of whose layers may be in half precision."""
    hidden = model.body(inputs.to(model.body.weight.dtype)).tanh()
    total = torch.zeros(())
    for head in (model.a, model.b):
        if letter in "+" or head is (model.a if letter == "a" else model.b):
            total = total + head(hidden.to(head.weight.dtype)).float().square().sum()
    return total


def train(model, optimizer, pattern="+++", seed=0):
    for letter, inputs in zip(pattern, batches(len(pattern), seed), strict=True):
        optimizer.zero_grad()
        if letter != "0":
            optimizer.scale_loss(loss_of(model, inputs, letter)).backward()
        optimizer.step()


def wrapped(model, name="Adam", loss_scale=8.0, **options):
    made = ALL[name](model.named_parameters())
    return MixedPrecisionOptimizerWrapper(made, loss_scale, **options)


def everything(model, optimizer):
    """Return copies of weights, masters and state, by name."""
    found = {}
    for name, weight in model.named_parameters():
        master = optimizer.master(weight)
        found[name], found[f"{name} master"] = weight, master
        for key, value in optimizer.state.get(master, {}).items():
            found[f"{name}/{key}"] = torch.as_tensor(value)
    return {key: value.detach().clone() for key, value in found.items()}


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for key, value in got.items():
        assert value.dtype == expected[key].dtype, key
        torch.testing.assert_close(
            value, expected[key], rtol=0, atol=0, equal_nan=True, msg=key
        )


@halves
@everyone
def test_masters_are_trained_as_float32_parameters_would_be(name, dtype):
    model = mixed(dtype)
    optimizer = wrapped(model, name, None)
    twin = {n: Parameter(p.detach().float()) for n, p in model.named_parameters()}
    plain = ALL[name](twin.items())
    for inputs in batches(4):
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        for key, parameter in model.named_parameters():
            twin[key].grad = parameter.grad.float()
        optimizer.step()
        plain.step()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(
            optimizer.master(parameter), twin[key], rtol=0, atol=0
        )
        assert torch.equal(parameter, twin[key].to(parameter.dtype))


def test_updates_too_small_for_float16_add_up():
    weight = Parameter(torch.ones(2).half())
    optimizer = wrapped_weight(weight, lr=1e-4)
    for _ in range(10):
        step_on(weight, optimizer, torch.ones(2))
    assert optimizer.master(weight).tolist() == pytest.approx([0.999] * 2, abs=1e-6)
    assert weight.tolist() == pytest.approx([0.999] * 2, abs=5e-4)


def wrapped_weight(weight, lr=1.0, loss_scale=1.0, **options):
    sgd = torch.optim.SGD([("weight", weight)], lr=lr)
    return MixedPrecisionOptimizerWrapper(sgd, loss_scale, **options)


def step_on(weight, optimizer, gradient):
    weight.grad = gradient.to(weight.dtype)
    optimizer.step()


@halves
def test_a_weight_is_clamped_and_its_master_goes_on(dtype):
    weight = Parameter(torch.zeros(3, dtype=dtype))
    optimizer = wrapped_weight(weight)
    largest = torch.finfo(dtype).max
    with torch.no_grad():
        optimizer.master(weight).copy_(torch.tensor([3.4e38, -3.4e38, 1.0]))
    step_on(weight, optimizer, torch.zeros(3))
    assert weight.tolist() == [largest, -largest, 1.0]
    assert optimizer.master(weight)[0] > largest


def test_the_groups_are_the_wrapped_optimizers_over_float32_masters():
    model = mixed()
    groups = [
        {"params": list(model.body.parameters()), "lr": 0.5},
        {"params": [*model.a.parameters(), *model.b.parameters()]},
    ]
    sgd = torch.optim.SGD(groups, lr=0.25)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 4)
    assert optimizer.param_groups is sgd.param_groups
    held = [p for group in sgd.param_groups for p in group["params"]]
    assert all(p.dtype == torch.float32 for p in held)
    assert held[-1] is model.b.bias
    before = everything(model, optimizer)
    train(model, optimizer, "+")
    after = everything(model, optimizer)
    for name, rate in ("body.weight", 0.5), ("a.weight", 0.25):
        moved = before[f"{name} master"] - after[f"{name} master"]
        gradient = model.get_parameter(name).grad.float() / 4
        torch.testing.assert_close(moved, rate * gradient)


def test_masters_and_gradients_lie_side_by_side():
    model = TwoHeads().half()
    optimizer = wrapped(model, "SGD")
    train(model, optimizer, "+")
    masters = [optimizer.master(p) for p in model.parameters()]
    assert len({m.untyped_storage().data_ptr() for m in masters}) == 1


def test_a_group_that_is_added_has_masters():
    model = mixed()
    optimizer = MixedPrecisionOptimizerWrapper(TORCH["SGD"](model.body.parameters()), 2)
    optimizer.add_param_group({"params": list(model.a.parameters()), "lr": 0.5})
    train(model, optimizer, "++")
    assert optimizer.master(model.a.weight).dtype == torch.float32
    assert not torch.equal(model.a.weight, TwoHeads().half().a.weight)
    with pytest.raises(ValueError, match="each parameter in one group"):
        optimizer.add_param_group({"params": [model.a.weight]})
    assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_clears_the_models_gradients_and_the_masters(set_to_none):
    model = mixed()
    optimizer = wrapped(model)
    loss_of(model, torch.ones(2, 3)).backward()
    master = optimizer.master(model.a.weight)
    master.grad = torch.ones_like(master)
    optimizer.zero_grad(set_to_none)
    grads = [*(p.grad for p in model.parameters()), master.grad]
    assert all(g is None if set_to_none else not g.any() for g in grads)


def test_parameters_without_gradients_are_left_alone():
    model = mixed()
    optimizer = wrapped(model, "Adam")
    train(model, optimizer, "++")
    before = everything(model, optimizer)
    train(model, optimizer, "b")
    after = everything(model, optimizer)
    changed = {k for k in after if not torch.equal(after[k], before[k])}
    assert changed
    assert all(name.startswith(("b.", "body.")) for name in changed)


def test_a_step_without_gradients_does_nothing():
    model = mixed()
    optimizer = wrapped(model, loss_scale=DynamicLossScale(4.0, 1))
    before = everything(model, optimizer)
    optimizer.step()
    assert_same(everything(model, optimizer), before)
    assert optimizer.loss_scale.item() == 4.0


def test_sparse_gradients_stay_sparse():
    table = torch.nn.Embedding(5, 2, sparse=True).half()
    sgd = torch.optim.SGD(table.named_parameters(), lr=1.0)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 4)
    start = table.weight.detach().clone()
    optimizer.scale_loss(table(torch.tensor([1, 1, 3])).sum()).backward()
    optimizer.step()
    expected = start - torch.tensor([[0], [2], [0], [1], [0]]).half()
    assert torch.equal(table.weight, expected)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("scale", SCALES)
@some
def test_a_step_that_is_not_finite_changes_nothing_and_says_whose_fault(
    name, scale, bad
):
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "++")
    before = everything(model, optimizer)
    optimizer.zero_grad()
    optimizer.scale_loss(loss_of(model, torch.ones(2, 3))).backward()
    with torch.no_grad():
        model.a.weight.grad[0, 0] = bad
        model.b.bias.grad[0] = bad
    optimizer.step()
    assert_same(everything(model, optimizer), before)
    assert not optimizer.last_step.applied
    assert optimizer.last_step.nonfinite == ("a.weight", "b.bias")
    assert "skipped, not finite: a.weight, b.bias" in optimizer.last_step.reason


def test_large_finite_gradients_are_finite_though_their_squares_overflow():
    weight = Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = wrapped_weight(weight, clip_norm=1.0)
    step_on(weight, optimizer, torch.tensor([3e30, 4e30]))
    assert optimizer.last_step.applied
    assert optimizer.master(weight).tolist() == pytest.approx([-0.6, -0.8], rel=1e-2)


@pytest.mark.parametrize("name", ["SGD", "Adam fused", "Adam", "TF1 Adam"])
def test_the_clip_is_folded_into_the_unscaling(name):
    model, twin = mixed(), mixed()
    optimizer = wrapped(model, name, 64.0, clip_norm=0.5)
    plain = ALL[name](
        [
            (n, Parameter(p.detach().float(), p.requires_grad))
            for n, p in twin.named_parameters()
        ]
    )
    for inputs in batches(3):
        optimizer.zero_grad()
        optimizer.scale_loss(loss_of(model, inputs)).backward()
        optimizer_grads = [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        params = plain.param_groups[0]["params"]
        for parameter, gradient in zip(params, optimizer_grads, strict=True):
            parameter.grad = gradient.float() / 64
        norm = torch.nn.utils.clip_grad_norm_(params, 0.5)
        plain.step()
        assert optimizer.last_step.norm == pytest.approx(norm.item(), rel=1e-5)
        for one, other in zip(optimizer.param_groups[0]["params"], params, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_gradients_under_the_limit_are_not_touched():
    weight = Parameter(torch.zeros(2).half())
    optimizer = wrapped_weight(weight, loss_scale=8, clip_norm=100.0)
    step_on(weight, optimizer, torch.tensor([3.0, 4.0]))
    assert optimizer.master(weight).tolist() == [-3.0, -4.0]
    assert optimizer.last_step.norm == 5.0


@pytest.mark.parametrize(
    ("given", "value"),
    [(None, 1.0), (8, 8.0), (0.5, 0.5), (np.float32(4), 4.0), (np.int64(2), 2.0)],
)
def test_numbers_of_all_kinds_are_scales(given, value):
    assert wrapped(mixed(), loss_scale=given).loss_scale.item() == value


def test_objects_and_dynamic_are_scales():
    assert wrapped(mixed(), loss_scale="dynamic").loss_scale.item() == 2.0**15
    assert wrapped(mixed(), loss_scale=FixedLossScale(3)).loss_scale.item() == 3.0
    scaler = AutomaticLossScaler("Backoff", {"scale_max": 8.0})
    assert wrapped(mixed(), loss_scale=scaler).loss_scale.item() == 8.0


@pytest.mark.parametrize("wrong", ["Backoff", "8", 0, -1.0, float("nan"), True, [8]])
def test_what_is_no_scale_is_refused_and_the_optimizer_left_alone(wrong):
    model = mixed()
    adam = TORCH["Adam"](model.parameters())
    with pytest.raises(ValueError, match="MixedPrecisionOptimizerWrapper: loss_scale"):
        MixedPrecisionOptimizerWrapper(adam, wrong)
    assert adam.param_groups[0]["params"][0] is model.body.weight


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), "1", True])
def test_what_is_no_norm_is_refused(wrong):
    with pytest.raises(ValueError, match="clip_norm: expected > 0, finite"):
        wrapped(mixed(), clip_norm=wrong)


@pytest.mark.parametrize("wrong", [None, 3, TwoHeads(), torch.optim.SGD, "SGD"])
def test_what_is_no_optimizer_is_refused(wrong):
    with pytest.raises(ValueError, match=r"expected a torch\.optim\.Optimizer, got"):
        MixedPrecisionOptimizerWrapper(wrong)


def test_a_closure_is_called_once_and_its_loss_returned():
    model, calls = mixed(), []
    optimizer = wrapped(model, "SGD")

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = loss_of(model, torch.ones(2, 3))
        optimizer.scale_loss(loss).backward()
        return loss

    before = everything(model, optimizer)
    loss = optimizer.step(closure)
    assert calls == [1]
    assert loss.item() > 0
    assert not torch.equal(model.a.weight, before["a.weight"])


@some
def test_minimize_and_step_give_the_same_bits(name):
    one, other = mixed(), mixed()
    first, second = wrapped(one, name), wrapped(other, name)
    counter = torch.zeros((), dtype=torch.int64)
    for inputs in batches(3):
        first.zero_grad()
        first.scale_loss(loss_of(one, inputs)).backward()
        first.step()
        second.minimize(lambda x=inputs: loss_of(other, x), counter)
    assert_same(everything(one, first), everything(other, second))
    assert counter.item() == 3


def test_compute_gradients_pairs_unscaled_float32_gradients_with_masters():
    weight = Parameter(torch.ones(2).half())
    optimizer = wrapped_weight(weight, loss_scale=8)
    ((gradient, master),) = optimizer.compute_gradients(lambda: (3 * weight).sum())
    assert gradient.tolist() == [3.0, 3.0]
    assert gradient.dtype == torch.float32
    assert master is optimizer.master(weight)
    weight.grad = torch.full_like(weight, 7.0)
    optimizer.apply_gradients([(gradient, master)])
    assert weight.tolist() == [-2.0, -2.0]
    assert weight.grad.tolist() == [7.0, 7.0]
    assert master.grad is None
    optimizer.apply_gradients([(torch.ones(2).half(), weight)])
    assert weight.tolist() == [-3.0, -3.0]


def test_a_float16_loss_is_scaled_in_float32():
    weight = Parameter(torch.ones(1).half())
    optimizer = wrapped_weight(weight, loss_scale="dynamic")
    loss = optimizer.scale_loss(weight.sum() + 3)
    assert loss.item() == 4 * 2.0**15
    loss.backward()
    optimizer.step()
    assert optimizer.master(weight).item() == 0.0


class TestRegularizer:
    def test_the_penalty_is_taken_at_the_master_in_float32(self):
        weight = Parameter(torch.full((2,), 1e-4).half())
        l2 = mp_regularizer_wrapper(lambda w: 0.5 * 1e-4 * w.square().sum())
        assert l2(weight) is None
        optimizer = wrapped_weight(weight, loss_scale=16)
        before = optimizer.master(weight).clone()
        step_on(weight, optimizer, torch.zeros(2))
        torch.testing.assert_close(
            before - optimizer.master(weight), before * 1e-4, rtol=1e-3, atol=0
        )

    def test_other_weights_are_regularized_as_usual(self):
        weight = Parameter(torch.ones(2))
        assert mp_regularizer_wrapper(lambda w: w.sum())(weight).item() == 2.0
        assert weight not in REGISTERED

    def test_a_weight_is_not_kept_alive(self):
        weight = Parameter(torch.ones(2).half())
        mp_regularizer_wrapper(lambda w: w.sum())(weight)
        alive, count = weakref.ref(weight), len(REGISTERED)
        del weight
        gc.collect()
        assert alive() is None
        assert len(REGISTERED) == count - 1

    def test_a_sparse_gradient_becomes_dense(self):
        table = torch.nn.Embedding(3, 2, sparse=True).half()
        mp_regularizer_wrapper(lambda w: 0.5 * w.square().sum())(table.weight)
        optimizer = wrapped_weight(table.weight, lr=0.5, loss_scale=2)
        start = optimizer.master(table.weight).clone()
        optimizer.scale_loss(table(torch.tensor([1])).sum()).backward()
        optimizer.step()
        still = torch.tensor([[0.0], [1.0], [0.0]])
        expected = start - 0.5 * (start + still)
        torch.testing.assert_close(optimizer.master(table.weight), expected)

    def test_an_absent_gradient_is_the_penaltys(self):
        one, other = Parameter(torch.ones(2).half()), Parameter(torch.ones(2).half())
        mp_regularizer_wrapper(lambda w: 0.5 * w.square().sum())(one)
        sgd = torch.optim.SGD([one, other], lr=0.5)
        optimizer = MixedPrecisionOptimizerWrapper(sgd, 4)
        step_on(other, optimizer, torch.zeros(2))
        assert one.tolist() == [0.5, 0.5]

    def test_a_copy_keeps_its_regularizers(self):
        weight = Parameter(torch.ones(2).half())
        mp_regularizer_wrapper(lambda w: 0.5 * w.square().sum())(weight)
        optimizer = wrapped_weight(weight, lr=0.5)
        step_on(weight, optimizer, torch.zeros(2))
        twin, copied = copy.deepcopy((weight, optimizer))
        step_on(twin, copied, torch.zeros(2))
        assert twin.tolist() == [0.25, 0.25]

    def test_what_cannot_be_called_is_refused(self):
        with pytest.raises(TypeError, match="expected a callable of a weight, got str"):
            mp_regularizer_wrapper("l2")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
@everyone
def test_a_copy_goes_on_as_the_original_does(name, copied, scale):
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "+a")
    other, twin = copied((model, optimizer))
    train(model, optimizer, "ab0+")
    train(other, twin, "ab0+")
    assert_same(everything(other, twin), everything(model, optimizer))
    assert twin.loss_scale == optimizer.loss_scale


@pytest.mark.parametrize("first", ["model", "optimizer"])
@pytest.mark.parametrize("scale", SCALES)
@everyone
def test_a_loaded_state_goes_on_to_the_bit(name, scale, first):
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "+ab")
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    fresh = mixed()
    with torch.no_grad():
        for weight in fresh.parameters():
            weight.zero_()
    loaded = wrapped(fresh, name, SCALES[scale]())
    loads = [(fresh, saved[0]), (loaded, saved[1])]
    for target, state in loads if first == "model" else reversed(loads):
        target.load_state_dict(state)
    train(model, optimizer, "ba+")
    train(fresh, loaded, "ba+")
    assert_same(everything(fresh, loaded), everything(model, optimizer))
    assert loaded.loss_scale == optimizer.loss_scale


@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "name", [*TF1, "SGD", "SGD momentum", "Adam", "Adam fused", "RMSprop", "Adagrad"]
)
def test_distributed_checkpoints_resume_to_the_bit(name, scale, flat):
    options = checkpoint.StateDictOptions(flatten_optimizer_state_dict=flat)
    model = mixed()
    optimizer = wrapped(model, name, SCALES[scale]())
    train(model, optimizer, "+ab")
    whole = optimizer.as_module(model)
    saved = checkpoint.get_optimizer_state_dict(whole, optimizer, options=options)
    saved = copy.deepcopy(saved)
    fresh = mixed()
    loaded = wrapped(fresh, name, SCALES[scale]())
    fresh.load_state_dict(model.state_dict())
    whole = loaded.as_module(fresh)
    checkpoint.set_optimizer_state_dict(whole, loaded, saved, options=options)
    train(model, optimizer, "ba+")
    train(fresh, loaded, "ba+")
    assert_same(everything(fresh, loaded), everything(model, optimizer))
    assert loaded.loss_scale == optimizer.loss_scale


def test_a_state_of_another_shape_is_refused_before_anything_changes():
    model = mixed()
    optimizer = wrapped(model)
    train(model, optimizer, "++")
    before = everything(model, optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][5]["exp_avg"] = torch.zeros(7)
    with pytest.raises(ValueError, match=r"shape \[2\] for 'b.bias', got \[7\]"):
        optimizer.load_state_dict(saved)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["master"] = torch.zeros(4)
    with pytest.raises(ValueError, match=r"shape \[4, 3\] for 'body.weight', got"):
        optimizer.load_state_dict(saved)
    bare = TORCH["Adam"](TwoHeads().parameters()).state_dict()
    with pytest.raises(ValueError, match="with the masters of every half-precision"):
        optimizer.load_state_dict(bare)
    assert_same(everything(model, optimizer), before)


def test_masters_follow_what_is_loaded_into_the_model():
    model = mixed()
    optimizer = wrapped(model, "SGD")
    train(model, optimizer, "+")
    with torch.no_grad():
        model.a.weight.fill_(3.0)
    optimizer.zero_grad()
    model.a.weight.grad = torch.zeros_like(model.a.weight)
    optimizer.step()
    assert (model.a.weight == 3).all()
    assert (optimizer.master(model.a.weight) == 3).all()


@some
def test_a_scheduler_drives_the_rate(name):
    model = mixed()
    optimizer = wrapped(model, name)
    scheduler = lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, "+")
        scheduler.step()
    assert optimizer.inner_optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("name", ["SGD", "Adam fused"])
def test_a_grad_scaler_is_refused(name):
    model = mixed()
    optimizer = wrapped(model, name)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(model, torch.ones(2, 3))).backward()
    before = everything(model, optimizer)
    with pytest.raises(ValueError, match="got a GradScaler"):
        scaler.step(optimizer)
    assert_same(everything(model, optimizer), before)


def test_hooks_fire_once_with_the_wrapper():
    model, seen = mixed(), []
    optimizer = wrapped(model, "SGD")
    optimizer.register_step_pre_hook(lambda opt, *_: seen.append(opt))
    optimizer.register_step_post_hook(lambda opt, *_: seen.append(opt))
    train(model, optimizer, "+")
    assert seen == [optimizer, optimizer]


def test_other_wrappers_work_inside_and_around():
    model = mixed()
    sgd = TORCH["SGD momentum"](model.named_parameters())
    rows = VariableClippingOptimizer(sgd, {"a.weight": [1]}, 0.125)
    optimizer = MixedPrecisionOptimizerWrapper(MultitaskOptimizerWrapper(rows), 8)
    train(model, optimizer, "++")
    assert (model.a.weight.float().norm(dim=1) <= 0.1251).all()
    loss_of(model, torch.ones(2, 3)).backward()
    outer = MultitaskOptimizerWrapper(wrapped(mixed(), "SGD"))
    outer.step()
    assert outer.get_name() == "SGD-MP"


# Dynamo's own: it looks at the .grad of what it hands on from graph to graph.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")
@pytest.mark.parametrize("name", ["Adam", "SGD momentum", "TF1 Adam"])
def test_a_compiled_training_step_gives_the_same_bits(name):
    plain, compiled = mixed(), mixed()
    optimizer, other = wrapped(plain, name), wrapped(compiled, name)

    @torch.compile(backend="eager")
    def step(inputs):
        other.zero_grad()
        other.scale_loss(loss_of(compiled, inputs)).backward()
        other.step()

    for inputs in batches(3):
        step(inputs)
    train(plain, optimizer, "+++")
    torch.compiler.reset()
    assert_same(everything(compiled, other), everything(plain, optimizer))


class TestStrict:
    def test_a_static_scale_applies_what_is_not_finite(self):
        weight = Parameter(torch.ones(2).half())
        sgd = strict.GradientDescentOptimizer([("weight", weight)], 1.0)
        optimizer = strict.MixedPrecisionOptimizerWrapper(sgd, 8.0)
        optimizer.apply_gradients([(torch.tensor([torch.inf, 1.0]).half(), weight)])
        assert weight.tolist() == [-65504.0, 0.0]
        assert optimizer.last_step.nonfinite == ("weight",)

    @pytest.mark.parametrize("given", [8, np.float32(8), "Backoff", "dynamic"])
    def test_an_unusable_scale_fails_when_it_is_used(self, given):
        weight = Parameter(torch.ones(2).half())
        sgd = strict.GradientDescentOptimizer([weight], 1.0)
        optimizer = strict.MixedPrecisionOptimizerWrapper(sgd, given)
        with pytest.raises(AttributeError, match="a float or an AutomaticLossScaler"):
            optimizer.compute_gradients(lambda: weight.sum().float())

    def test_an_absent_gradient_is_refused(self):
        one, other = Parameter(torch.ones(2).half()), Parameter(torch.ones(2).half())
        sgd = strict.GradientDescentOptimizer([("one", one), ("other", other)], 1.0)
        optimizer = strict.MixedPrecisionOptimizerWrapper(sgd, 8.0)
        with pytest.raises(ValueError, match="a gradient for the float16 variable"):
            optimizer.compute_gradients(lambda: one.sum().float())

    def test_bfloat16_has_no_masters_and_slots_are_not_seen(self):
        weight = Parameter(torch.ones(2).bfloat16())
        adam = pytorch.AdamOptimizer([weight], 1.0)
        optimizer = strict.MixedPrecisionOptimizerWrapper(adam, 8.0)
        assert optimizer.master(weight) is weight
        assert optimizer.get_slot(weight, "m") is None
        assert optimizer.get_slot_names() == optimizer.variables() == []


def test_slots_are_those_of_the_master():
    weight = Parameter(torch.ones(2).half())
    optimizer = MixedPrecisionOptimizerWrapper(pytorch.AdamOptimizer([weight], 1.0))
    assert optimizer.get_slot(weight, "m").dtype == torch.float32
    assert optimizer.get_slot_names() == ["m", "v"]
    assert optimizer.get_name() == "Adam-MP"


def test_state_that_was_made_before_is_taken_over_in_float32():
    weight = Parameter(torch.ones(2).half())
    adam = torch.optim.Adam([weight], lr=0.1)
    step_on(weight, adam, torch.ones(2))
    first = adam.state[weight]["exp_avg"].float()
    optimizer = MixedPrecisionOptimizerWrapper(adam)
    kept = optimizer.get_slot(weight, "m")
    assert torch.equal(kept, first)
    assert kept.dtype == torch.float32
    step_on(weight, optimizer, torch.ones(2))
    assert optimizer.state[optimizer.master(weight)]["step"] == 2


class TestCapturable:
    """A step that never waits for the device, here on a CPU: the same numbers."""

    @pytest.mark.parametrize("scale", ["number", "dynamic"])
    @pytest.mark.parametrize("fused", ["Adam fused", "SGD fused"])
    def test_it_goes_as_the_step_that_waits_does(self, fused, scale):
        one, other = TwoHeads().half(), TwoHeads().half()
        kinds = {"Adam fused": torch.optim.Adam, "SGD fused": torch.optim.SGD}
        more = {} if fused.startswith("Adam") else {"momentum": 0.9}
        made = []
        for model, capturable in ((one, False), (other, True)):
            inner = kinds[fused](model.named_parameters(), lr=0.1, fused=True, **more)
            made.append(
                MixedPrecisionOptimizerWrapper(
                    inner, SCALES[scale](), clip_norm=0.5, capturable=capturable
                )
            )
        for k, inputs in enumerate(batches(6)):
            for model, optimizer in zip((one, other), made, strict=True):
                optimizer.zero_grad()
                optimizer.scale_loss(loss_of(model, inputs)).backward()
                if k in (0, 3):
                    model.a.bias.grad[0] = torch.inf
                optimizer.step()
            assert made[0].loss_scale == made[1].loss_scale
            waits, runs = made[0].last_step, made[1].last_step
            assert runs[:2] == waits[:2]
            assert runs.nonfinite == waits.nonfinite
        for a, b in zip(one.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(
                made[0].master(a), made[1].master(b), rtol=1e-5, atol=1e-7
            )
        number = made[1].state_dict()["param_groups"][0].get("loss_scale", 8.0)
        assert number == made[0].loss_scale.item()

    def test_a_copy_and_a_checkpoint_have_the_scale(self):
        model = mixed()
        scale = DynamicLossScale(4.0, 1)
        optimizer = wrapped(model, "Adam fused", scale, capturable=True)
        train(model, optimizer, "++")
        _, twin = copy.deepcopy((model, optimizer))
        loaded = wrapped(
            mixed(), "Adam fused", DynamicLossScale(4.0, 1), capturable=True
        )
        loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert twin.loss_scale == loaded.loss_scale == optimizer.loss_scale == 16.0

    @pytest.mark.parametrize("name", ["SGD", "Adam", "TF1 Adam"])
    def test_an_optimizer_that_cannot_skip_by_itself_is_refused(self, name):
        model = mixed()
        made = ALL[name](model.parameters())
        with pytest.raises(ValueError, match="with fused=True for capturable=True"):
            MixedPrecisionOptimizerWrapper(made, 8, capturable=True)
        assert made.param_groups[0]["params"][0] is model.body.weight

    def test_automatic_scalers_are_refused(self):
        with pytest.raises(ValueError, match="for capturable=True"):
            wrapped(mixed(), "Adam fused", AutomaticLossScaler(), capturable=True)
