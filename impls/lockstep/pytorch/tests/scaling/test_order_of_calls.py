"""The calls of a training loop, in any order that people use: right, or an error."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lockstep.pytorch import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    PolicyLR,
)
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, assert_same_bits

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


def loss_of(model: TwoHeads) -> Tensor:
    return model(ONE, 1.0, 1.0)


def backward(model, optimizer, loss=None):
    """Scale a loss, unless the optimizer is a bare one, and differentiate it."""
    scale = getattr(optimizer, "scale_loss", lambda value: value)
    scale(loss_of(model) if loss is None else loss).backward()


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
    loss = optimizer.scale_loss(loss_of(model))
    optimizer.zero_grad()
    loss.backward()


def a_loss_for_validation_between(model, optimizer):
    backward(model, optimizer)
    with torch.no_grad():
        optimizer.scale_loss(loss_of(model))


def without_scaling(model, optimizer):
    loss_of(model).backward()


def pairs_first(model, optimizer):
    """compute_gradients hands unscaled ones out; .grad is filled in by hand."""
    pairs = optimizer.compute_gradients(lambda: loss_of(model))
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
    loss_of(plain).backward()
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
    loss_of(plain).backward()
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
        loss_of(plain).backward()
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
