"""Fused optimizers of torch in wrappers: they do what the others do."""

from __future__ import annotations

import math
from itertools import product
from types import MethodType

import pytest
import torch
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Adam, AdamW

from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    loss_scaling,
    optimize_loss,
)
from lockstep.pytorch.fused import has_hooks

WRAPPERS = {
    "multitask": MultitaskOptimizerWrapper,
    "row clipping": lambda opt: VariableClippingOptimizer(opt, {}, 1.0),
    "loss scale": lambda opt: MixedPrecisionLossScaleOptimizer(opt, 8.0),
    "masters": lambda opt: MixedPrecisionOptimizerWrapper(opt, 8.0),
}


def kernel() -> Parameter:
    """Return a kernel of a convolution in channels_last."""
    values = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    return Parameter(values.to(memory_format=torch.channels_last))


def assert_close_and_moved(ours: Parameter, expected: Parameter) -> None:
    """Compare with the parameter that an unfused optimizer trained."""
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(expected, kernel())


@pytest.mark.parametrize("make", [SGD, Adam, AdamW, Adagrad])
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_gradients_in_another_layout_are_those_of_the_same_elements(wrap, make):
    """``torch.autograd.grad`` may return any strides; ``backward`` does not."""
    inputs = torch.randn(2, 3, 4, 4)
    bare = kernel()
    optimizer = make([bare], lr=0.1)
    ours, bias = kernel(), Parameter(torch.ones(2))
    wrapper = wrap(make([ours, bias], lr=0.1, fused=True))
    for _ in range(3):
        optimizer.zero_grad()
        (bare * inputs).sum().backward()
        optimizer.step()
        wrapper.minimize(lambda: (ours * inputs).sum() + bias.sum())
    assert_close_and_moved(ours, bare)
    assert torch.equal(bias[:1], bias[1:])


def test_an_expanded_gradient_is_not_read_beyond_its_end():
    ours = Parameter(torch.ones(4, 3))
    pairs = [(torch.tensor(0.5).expand(ours.shape), ours)]
    MultitaskOptimizerWrapper(SGD([ours], lr=1.0, fused=True)).apply_gradients(pairs)
    assert torch.equal(ours, torch.full_like(ours, 0.5))
    assert pairs[0][0].stride() == (0, 0)


class TwoRanksAlike:
    """A reduction of two ranks with the same gradients, sent in a flat buffer."""

    size = 2

    def any(self, flags):
        return list(flags)

    def all_reduce(self, tensors):
        return [tensor.reshape(-1).clone().view(tensor.shape) for tensor in tensors]


def test_reduced_gradients_are_those_of_the_same_elements():
    inputs, trained = torch.randn(2, 3, 4, 4), []
    for fused in (False, True):
        weight = kernel()
        step = optimize_loss(
            lambda weight=weight: (weight * inputs).sum(),
            SGD([weight], lr=0.1, fused=fused),
            None,
            0.1,
            on_horovod=True,
            reduction=TwoRanksAlike(),
        )
        step()
        trained.append(weight)
    assert_close_and_moved(*reversed(trained))


def test_a_parameter_may_be_absent_from_the_first_push():
    """The center's fused SGD then has a momentum buffer of the others only."""
    trained = []
    for fused in (False, True):
        body, head = (Parameter(torch.ones(3)) for _ in range(2))
        getter = AGNCustomGetter("cpu")
        sgd = SGD(getter([body, head]), lr=0.1, momentum=0.9, fused=fused)
        worker = AGNOptimizer(sgd, 1, getter, communication_period=2)
        with worker.make_session_run_hook(is_chief=True, task_index=0):
            for is_absent in (False, True, False, False, False, False):
                worker.zero_grad()
                (body.sum() + (0 if is_absent else head.sum())).backward()
                worker.step()
        trained.append([*body.tolist(), *head.tolist()])
    assert trained[1] == pytest.approx(trained[0], rel=1e-6)
    assert trained[0][0] < trained[0][3] < 1


@pytest.mark.parametrize(
    "inside", [lambda opt: opt, MultitaskOptimizerWrapper], ids=["bare", "multitask"]
)
@pytest.mark.parametrize("fused", [False, True])
def test_a_hook_of_the_wrapped_optimizer_gets_unscaled_gradients(fused, inside):
    """For example one that clips."""
    weight, norms = Parameter(torch.ones(4)), []
    sgd = SGD([weight], lr=0.1, fused=fused)
    sgd.register_step_pre_hook(lambda *_: norms.append(weight.grad.norm().item()))
    wrapper = MixedPrecisionLossScaleOptimizer(inside(sgd), 8.0)
    wrapper.scale_loss(3 * weight.sum()).backward()
    wrapper.step()
    assert norms == [6.0]
    torch.testing.assert_close(weight, torch.full((4,), 0.7))


def test_a_scheduler_is_no_hook_but_a_patched_step_is():
    """A scheduler replaces ``step`` to count its calls."""
    sgd = SGD([Parameter(torch.ones(2))], lr=0.1, fused=True)
    torch.optim.lr_scheduler.StepLR(sgd, 2)
    assert "step" in vars(sgd)
    assert not has_hooks(sgd) and not has_hooks(MultitaskOptimizerWrapper(sgd))
    sgd.step = MethodType(lambda self: None, sgd)
    assert has_hooks(sgd)
    torch.optim.lr_scheduler.StepLR(sgd, 2)
    assert has_hooks(MultitaskOptimizerWrapper(sgd))


STACKS = {
    "multitask": MultitaskOptimizerWrapper,
    "rows": lambda opt: VariableClippingOptimizer(opt, {}, 1.0),
    "multitask, rows": lambda opt: MultitaskOptimizerWrapper(
        VariableClippingOptimizer(opt, {}, 1.0)
    ),
    "rows, multitask": lambda opt: VariableClippingOptimizer(
        MultitaskOptimizerWrapper(opt), {}, 1.0
    ),
}
SCALE = 1024.0
# The first one is zero only after the division.
KINDS = {"tiny": 511 * 2.0**-149, "absent": None, "zero": 0.0, "some": 3.0}
OPTIMIZERS = {
    "Adam": (Adam, {}),
    "AdamW": (AdamW, {}),
    "momentum": (SGD, {"momentum": 0.9}),
}


def no_division(*_: object) -> None:
    """Fail, because the optimizer inside should have divided."""
    raise AssertionError("the loss scale divided")


@pytest.mark.parametrize(
    "outer", [MixedPrecisionLossScaleOptimizer, MixedPrecisionOptimizerWrapper]
)
@pytest.mark.parametrize("make, options", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_the_optimizer_divides_inside_of_wrappers_as_the_loss_scale_does(
    stack, make, options, outer, monkeypatch
):
    """A hook needs divided gradients, so with one the loss scale divides."""
    # In the second step, only one of the weights has a momentum buffer.
    steps = [("tiny", "some"), ("some", "some"), *product(KINDS, KINDS)]
    trained = []
    for is_hooked in (True, False):
        weights = [Parameter(torch.full((n,), 1.0 + n)) for n in (2, 3)]
        if outer is MixedPrecisionOptimizerWrapper:
            weights[1].data = weights[1].data.half()
        optimizer = make(weights, lr=0.1, fused=True, **options)
        if is_hooked:
            optimizer.register_step_pre_hook(lambda *_: None)
        else:
            monkeypatch.setattr(loss_scaling, "divide_in_place", no_division)
        # The norm is computed, so small gradients are not divided as they are checked.
        wrapper = outer(stack(optimizer), SCALE, clip_norm=math.inf)
        seen = []
        for kinds in steps:
            wrapper.zero_grad()
            wrapper.scale_loss(weights[0].sum()).backward()
            for weight, kind in zip(weights, kinds, strict=True):
                value = KINDS[kind]
                full = None if value is None else torch.full_like(weight, value)
                weight.grad = full
            wrapper.step()
            grads = [None if w.grad is None else w.grad.tolist() for w in weights]
            seen.append((*[w.tolist() for w in weights], *grads))
            seen.append((wrapper.last_step.applied, wrapper.last_step.skipped))
        trained.append((seen, sorted(map(str, optimizer.state.values()))))
    assert trained[0] == trained[1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_gradients_of_other_dtypes_are_divided_outside(dtype):
    """Their quotients become zero at other numbers."""
    weight = Parameter(torch.ones(2, dtype=dtype))
    adam = Adam([weight], lr=0.5, fused=True)
    wrapper = MixedPrecisionLossScaleOptimizer(MultitaskOptimizerWrapper(adam), SCALE)
    wrapper.scale_loss(weight.sum()).backward()
    weight.grad = torch.full_like(weight, torch.finfo(dtype).tiny / 4)
    weight.grad *= torch.finfo(dtype).eps * 8
    assert weight.grad.all()
    wrapper.step()
    assert weight.tolist() == [1, 1] and not adam.state
    assert wrapper.last_step.skipped
