"""The order of scale_loss, backward, unscale_ and step."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from lockstep.errors import UnsupportedError
from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    PolicyLR,
    mp_regularizer_wrapper,
)
from lockstep.pytorch.tests.half_models import loss_of, mixed
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, assert_same_bits, batches

ONE = torch.ones(2, 3)


def scaled(opt):
    return MixedPrecisionLossScaleOptimizer(opt, DynamicLossScale(64.0, 100))


def masters(opt):
    return MixedPrecisionOptimizerWrapper(opt, DynamicLossScale(64.0, 100))


WRAPPERS = {
    "scaled": scaled,
    "masters": masters,
    "multitask around": lambda opt: MultitaskOptimizerWrapper(scaled(opt)),
    "multitask inside": lambda opt: scaled(MultitaskOptimizerWrapper(opt)),
}
everyone = pytest.mark.parametrize("wrapper", WRAPPERS)


def one_loss(model: TwoHeads) -> Tensor:
    return model(ONE, 1.0, 1.0)


def backward(model, optimizer, loss=None):
    """Scale a loss, unless the optimizer is a bare one, and differentiate it."""
    scale = getattr(optimizer, "scale_loss", lambda value: value)
    scale(one_loss(model) if loss is None else loss).backward()


def assert_same_weights(model, plain):
    assert_same_bits(model.state_dict(), plain.state_dict())


def one_backward(model, optimizer):
    backward(model, optimizer)


def two_losses(model, optimizer):
    """Each scaled by itself; their gradients add up in .grad."""
    backward(model, optimizer, model(ONE, 1.0, 0.0))
    backward(model, optimizer, model(ONE, 0.0, 1.0))


def a_step_without_gradients_first(model, optimizer):
    optimizer.step()
    optimizer.zero_grad()
    backward(model, optimizer)


def a_loss_thrown_away(model, optimizer):
    """A batch that is given up: its loss was scaled, its gradients are cleared."""
    backward(model, optimizer)
    optimizer.zero_grad()
    backward(model, optimizer)


def gradients_cleared_before_backward(model, optimizer):
    loss = optimizer.scale_loss(one_loss(model))
    optimizer.zero_grad()
    loss.backward()


def a_loss_for_validation_between(model, optimizer):
    backward(model, optimizer)
    with torch.no_grad():
        optimizer.scale_loss(one_loss(model))


def without_scaling(model, optimizer):
    one_loss(model).backward()


def pairs_first(model, optimizer):
    """compute_gradients hands unscaled ones out; .grad is filled in by hand."""
    pairs = optimizer.compute_gradients(lambda: one_loss(model))
    for gradient, parameter in pairs:
        parameter.grad = gradient


LOOPS = [
    one_backward,
    two_losses,
    a_step_without_gradients_first,
    a_loss_thrown_away,
    gradients_cleared_before_backward,
    a_loss_for_validation_between,
    without_scaling,
    pairs_first,
]


@everyone
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_any_order_of_the_calls_divides_by_the_scale_once(loop, wrapper):
    plain, model = TwoHeads(), TwoHeads()
    bare = ALL["SGD"](plain.parameters())
    (two_losses if loop is two_losses else one_backward)(plain, bare)
    bare.step()
    optimizer = WRAPPERS[wrapper](ALL["SGD"](model.parameters()))
    loop(model, optimizer)
    optimizer.step()
    assert_same_weights(model, plain)


@everyone
def test_a_step_taken_twice_does_not_divide_twice(wrapper):
    plain, model = TwoHeads(), TwoHeads()
    bare = ALL["SGD"](plain.parameters())
    one_loss(plain).backward()
    optimizer = WRAPPERS[wrapper](ALL["SGD"](model.parameters()))
    backward(model, optimizer)
    for each in (bare, optimizer):
        each.step()
        each.step()
    assert_same_weights(model, plain)


@everyone
def test_after_a_skipped_step_there_is_nothing_to_call(wrapper):
    """Other scalers need an update() here, or the next step is wrong."""
    plain, model = TwoHeads(), TwoHeads()
    bare = ALL["SGD"](plain.parameters())
    optimizer = WRAPPERS[wrapper](ALL["SGD"](model.parameters()))
    backward(model, optimizer)
    model.a.bias.grad[0] = torch.inf
    optimizer.step()
    assert not optimizer.last_step.applied
    for each in (optimizer, bare):
        each.zero_grad()
    backward(model, optimizer)
    one_loss(plain).backward()
    for each in (optimizer, bare):
        each.step()
    assert_same_weights(model, plain)


@everyone
@pytest.mark.parametrize("position", range(6))
def test_a_gradient_may_be_none_in_every_position(position, wrapper):
    plain, model = TwoHeads(), TwoHeads()
    bare = ALL["Adam"](plain.parameters())
    optimizer = WRAPPERS[wrapper](ALL["Adam"](model.parameters()))
    for _ in range(2):
        optimizer.zero_grad()
        bare.zero_grad()
        backward(model, optimizer)
        one_loss(plain).backward()
        for each in (plain, model):
            list(each.parameters())[position].grad = None
        optimizer.step()
        bare.step()
    assert_same_weights(model, plain)


@pytest.mark.parametrize("follows", ["applied steps", "calls"])
@everyone
def test_a_schedule_follows_applied_steps_or_calls_as_the_user_chooses(
    wrapper, follows
):
    weight = nn.Parameter(torch.ones(2))
    sgd = torch.optim.SGD([("weight", weight)], lr=0.5)
    optimizer = WRAPPERS[wrapper](sgd)
    schedule = PolicyLR(optimizer, "poly_decay", decay_steps=8)
    for step in range(4):
        weight.grad = torch.full((2,), torch.inf if step in (1, 2) else 1.0)
        optimizer.step()
        if follows == "calls" or optimizer.last_step.applied:
            schedule.step()
    done = {"applied steps": 2, "calls": 4}[follows]
    assert optimizer.param_groups[0]["lr"] == 0.5 * (1 - done / 8)


# Dynamo's own: it looks at the .grad of what it hands on from graph to graph.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute")
@everyone
def test_a_compiled_training_step_is_not_compiled_anew(wrapper):
    """The step itself runs outside of the compiled code, once, as documented."""
    model = TwoHeads()
    optimizer = WRAPPERS[wrapper](ALL["SGD momentum"](model.parameters()))
    compiled = []

    def backend(module, inputs):
        compiled.append(module)
        return module.forward

    @torch.compile(backend=backend)
    def step(inputs: Tensor) -> None:
        optimizer.zero_grad()
        optimizer.scale_loss(model(inputs, 1.0, 1.0)).backward()
        optimizer.step()

    counts = []
    for _ in range(5):
        step(ONE)
        counts.append(len(compiled))
    torch.compiler.reset()
    assert counts[1] == counts[-1]


INPUTS = next(batches(1))
KINDS = {
    "scaled": (TwoHeads, MixedPrecisionLossScaleOptimizer),
    "masters": (mixed, MixedPrecisionOptimizerWrapper),
    "masters bfloat16": (lambda: mixed(torch.bfloat16), MixedPrecisionOptimizerWrapper),
}
CAPTURABLE = {"capturable": True}
kinds = pytest.mark.parametrize("kind", KINDS)
modes = pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in KINDS), ("scaled", CAPTURABLE)],
    ids=[*KINDS, "capturable"],
)


def started(kind, name="Adam fused", scale=1024, **options):
    make, wrapper = KINDS[kind]
    model = make()
    return model, wrapper(ALL[name](model.named_parameters()), scale, **options)


def backward_unscale(model, optimizer, factor=1.0):
    optimizer.scale_loss(factor * loss_of(model, INPUTS)).backward()


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def assert_equal(got, expected):
    assert all(map(torch.equal, got, expected)) and len(got) == len(expected)


def step_by_pairs(model, optimizer, clip_norm):
    """Take the same step in TensorFlow's manner."""
    pairs = optimizer.compute_gradients(lambda: loss_of(model, INPUTS))
    lent = [torch.nn.Parameter(p.detach()) for _, p in pairs]
    for parameter, (gradient, _) in zip(lent, pairs, strict=True):
        parameter.grad = gradient.clone()
    clip_grad_norm_(lent, clip_norm)
    clipped = [p.grad for p in lent]
    optimizer.apply_gradients(zip(clipped, [p for _, p in pairs], strict=True))


@kinds
@pytest.mark.parametrize("name", ["SGD momentum", "Adam", "Adam fused", "TF1 Adam"])
def test_clipping_by_hand_is_clipping_what_compute_gradients_returns(kind, name):
    found = []
    for by_hand in (True, False):
        model, optimizer = started(kind, name)
        for _ in range(3):
            optimizer.zero_grad()
            if by_hand:
                backward_unscale(model, optimizer)
                optimizer.unscale_()
                clip_grad_norm_(optimizer.master_params(), 0.5)
                optimizer.step()
            else:
                step_by_pairs(model, optimizer, 0.5)
            assert optimizer.last_step.applied
        found.append(weights(model))
    assert_equal(*found)


@modes
def test_without_a_change_between_the_step_is_the_same_step(kind, options):
    found = []
    for by_hand in (True, False):
        model, optimizer = started(kind, clip_norm=0.5, **options)
        for _ in range(3):
            optimizer.zero_grad()
            backward_unscale(model, optimizer)
            if by_hand:
                optimizer.unscale_()
            optimizer.step()
            # The norm is taken of unscaled gradients once more.
            assert optimizer.last_step.norm > 0.5 > optimizer.last_step.clip_factor
        found.append(weights(model))
    for ours, theirs in zip(*found, strict=True):
        # Divided and clipped in two roundings instead of one; a weight in half
        # precision may then round to its neighbour.
        tolerance = 2**-6 if ours.dtype == torch.bfloat16 else 2**-10
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=1e-5)


@modes
def test_the_gradients_are_unscaled_in_place_and_once(kind, options):
    plain = started(kind, scale=1)[0]
    loss_of(plain, INPUTS).backward()
    model, optimizer = started(kind, **options)
    backward_unscale(model, optimizer)
    optimizer.unscale_()
    for parameter, bare in zip(
        optimizer.master_params(), plain.parameters(), strict=True
    ):
        # A half-precision gradient is rounded at another magnitude.
        torch.testing.assert_close(
            parameter.grad, bare.grad.float(), rtol=2**-7, atol=1e-3
        )
    grads = zip(model.parameters(), optimizer.master_params(), strict=True)
    assert all(torch.equal(parameter.grad, master.grad) for parameter, master in grads)
    with pytest.raises(RuntimeError):
        optimizer.unscale_()
    optimizer.step()
    assert all(optimizer.master(p).grad is None for p in halves(model, optimizer))


def halves(model, optimizer):
    if isinstance(optimizer, MixedPrecisionLossScaleOptimizer):
        return []
    return [p for p in model.parameters() if p.dtype != torch.float32]


@modes
@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("hide", [clip_grad_norm_, clip_grad_value_, None])
def test_an_overflow_is_not_hidden_by_clipping(kind, options, value, hide):
    scale = DynamicLossScale(1024.0)
    model, optimizer = started(kind, scale=scale, **options)
    backward_unscale(model, optimizer)
    model.a.bias.grad[0] = value
    before = weights(model)
    optimizer.unscale_()
    if hide is not None:
        hide(optimizer.master_params(), 1.0)
    optimizer.step()
    assert_equal(weights(model), before)
    assert not optimizer.last_step.applied
    assert optimizer.last_step.nonfinite == ("a.bias",)
    assert optimizer.loss_scale == 512 and optimizer.skipped_steps == 1


@kinds
def test_another_scaled_loss_before_the_step_is_refused(kind):
    model, optimizer = started(kind)
    backward_unscale(model, optimizer)
    optimizer.unscale_()
    further = optimizer.scale_loss(loss_of(model, INPUTS))
    with pytest.raises(RuntimeError, match="after unscale_"):
        further.backward()
    before = weights(model)
    optimizer.step()
    assert optimizer.last_step.applied
    assert not all(map(torch.equal, weights(model), before))


@kinds
@pytest.mark.parametrize("clear", ["the optimizer", "to zeros", "the model"])
def test_clearing_the_gradients_begins_again(kind, clear):
    found = []
    for abandons in (True, False):
        model, optimizer = started(kind)
        if abandons:
            backward_unscale(model, optimizer, 3.0)
            optimizer.unscale_()
            if clear == "the model":
                model.zero_grad()
            else:
                optimizer.zero_grad(set_to_none=clear == "the optimizer")
        backward_unscale(model, optimizer)
        optimizer.unscale_()
        optimizer.step()
        found.append(weights(model))
    assert_equal(*found)


@kinds
@pytest.mark.parametrize("max_norm", [0.5, 1e9])
def test_clipping_the_model_is_clipping_what_the_optimizer_updates(kind, max_norm):
    found = []
    for whose in ("model", "optimizer"):
        model, optimizer = started(kind, "Adam")
        for _ in range(2):
            optimizer.zero_grad()
            backward_unscale(model, optimizer)
            optimizer.unscale_()
            every = (
                model.parameters() if whose == "model" else optimizer.master_params()
            )
            clip_grad_norm_(every, max_norm)
            optimizer.step()
        found.append(weights(model))
    assert_equal(*found)


@pytest.mark.parametrize("change", ["replaced", "cleared"])
def test_masters_see_a_change_of_the_models_own_gradients(change):
    model, optimizer = started("masters", "SGD")
    backward_unscale(model, optimizer)
    optimizer.unscale_()
    before, weight = weights(model), model.body.weight
    weight.grad = torch.zeros_like(weight) if change == "replaced" else None
    optimizer.step()
    assert torch.equal(weight, before[0])
    assert not torch.equal(model.a.weight, weights(model)[2] - 1)


def test_a_gradient_too_small_for_float16_can_be_read_and_clipped():
    weight = torch.nn.Parameter(torch.ones(4).half())
    sgd = torch.optim.SGD([weight], lr=1.0)
    optimizer = MixedPrecisionOptimizerWrapper(sgd, 2.0**16)
    optimizer.scale_loss((1e-9 * weight.float()).sum()).backward()
    optimizer.unscale_()
    assert weight.grad.dtype == torch.float32
    torch.testing.assert_close(weight.grad, torch.full((4,), 1e-9), rtol=2e-3, atol=0)
    optimizer.step()
    optimizer.zero_grad()
    weight.sum().backward()
    assert weight.grad.dtype == torch.float16


def test_apply_gradients_after_it_has_nothing_to_do_with_it():
    model, optimizer = started("masters")
    backward_unscale(model, optimizer)
    optimizer.unscale_()
    master = optimizer.master(model.body.weight)
    optimizer.apply_gradients([(torch.ones_like(master), master)])
    assert all(optimizer.master(p).grad is None for p in halves(model, optimizer))
    optimizer.zero_grad()
    backward_unscale(model, optimizer)
    optimizer.unscale_()


@kinds
@pytest.mark.parametrize("by_hand", [False, True], ids=["scaled", "unscale_"])
def test_gradients_of_another_loss_leave_those_in_grad_alone(kind, by_hand):
    found = []
    for looks in (False, True):
        model, optimizer = started(kind)
        backward_unscale(model, optimizer)
        if by_hand:
            optimizer.unscale_()
            if looks:
                optimizer.compute_gradients(lambda m=model: 3 * loss_of(m, INPUTS))
        elif looks:
            with pytest.raises(UnsupportedError, match=r"call step\(\)"):
                optimizer.compute_gradients(lambda m=model: 3 * loss_of(m, INPUTS))
        optimizer.step()
        found.append(weights(model))
    assert_equal(*found)


def test_logmax_sees_the_gradients_before_they_are_clipped():
    found = []
    for by_hand in (True, False):
        scaler = AutomaticLossScaler("LogMax", {"scale_max": 64.0})
        model, optimizer = started("masters", scale=scaler)
        backward_unscale(model, optimizer, 100.0)
        if by_hand:
            optimizer.unscale_()
            clip_grad_norm_(optimizer.master_params(), 1e-3)
        optimizer.step()
        found.append(scaler.state)
    assert found[0] == found[1]


def test_a_penalty_is_in_what_is_clipped():
    model, optimizer = started("masters", scale=8)
    penalty = mp_regularizer_wrapper(lambda weight: weight.square().sum())
    penalty(model.body.weight)
    backward_unscale(model, optimizer, 0.0)
    optimizer.unscale_()
    master = optimizer.master(model.body.weight)
    torch.testing.assert_close(master.grad, 2 * master.detach())
    optimizer.step()
    assert optimizer.last_step.applied


@kinds
def test_without_gradients_it_does_nothing(kind):
    _, optimizer = started(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.unscale_()
        optimizer.step()
    assert optimizer.last_step.reason == "no parameter had a gradient"
    assert optimizer.skipped_steps == 0


@modes
def test_a_second_backward_after_it_is_refused_and_adds_nothing(kind, options):
    model, optimizer = started(kind, **options)
    scaled = optimizer.scale_loss(loss_of(model, INPUTS))
    scaled.backward(retain_graph=True)
    optimizer.unscale_()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    with pytest.raises(RuntimeError, match="after unscale_"):
        scaled.backward()
    assert_equal([parameter.grad for parameter in model.parameters()], before)
    optimizer.zero_grad()
    backward_unscale(model, optimizer)
    optimizer.unscale_()
    optimizer.step()
    assert optimizer.last_step.applied


@modes
def test_what_it_saw_of_no_gradients_does_not_count(kind, options):
    found = []
    for early in (False, True):
        model, optimizer = started(kind, **options)
        scaled = optimizer.scale_loss(loss_of(model, INPUTS))
        if early:
            optimizer.unscale_()
        scaled.backward()
        optimizer.step()
        found.append(weights(model))
    assert_equal(*found)
