"""What the wrapper does to parameters and state, around every optimizer of torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from lockstep.errors import LockstepError
from lockstep.interface import NO_STEP
from lockstep.pytorch import (
    MultitaskOptimizerWrapper,
    clip_gradients_by_global_norm,
)
from lockstep.pytorch.tests.subjects import (
    ALL,
    OWN,
    TORCH,
    TwoHeads,
    assert_same_bits,
    batches,
    snapshot,
    train,
)

everyone = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
SPARSE = {
    "SparseAdam": lambda params: torch.optim.SparseAdam(params, lr=0.1),
    "SGD": TORCH["SGD"],
    "Adagrad": TORCH["Adagrad"],
    **OWN,
}


def wrapped(make, model: nn.Module, **options) -> MultitaskOptimizerWrapper:
    """Wrap an optimizer of all parameters of ``model``, named."""
    return MultitaskOptimizerWrapper(make(model.named_parameters()), **options)


def head(state: dict, name: str) -> dict:
    """Return the part of a snapshot that belongs to one part of the model."""
    return {key: value for key, value in state.items() if key.startswith(f"{name}.")}


@everyone
def test_without_zero_gradients_the_bits_are_those_of_the_bare_optimizer(make):
    bare, ours = TwoHeads(), TwoHeads()
    optimizer, wrapper = make(bare.parameters()), wrapped(make, ours)
    train(bare, optimizer, "+++++")
    train(ours, wrapper, "+++++")
    assert_same_bits(snapshot(ours, wrapper), snapshot(bare, optimizer))
    assert not torch.equal(ours.a.weight, TwoHeads().a.weight)


@pytest.mark.parametrize("other", [{}, {"nesterov": True}, {"dampening": 0.5}])
def test_a_task_may_join_later_around_fused_sgd_with_momentum(other):
    """torch's fused kernel fails if only some parameters have a buffer."""
    options = {"lr": 0.1, "momentum": 0.9, **other}
    found = []
    for fused in (False, True):
        model = TwoHeads()
        sgd = torch.optim.SGD(model.parameters(), fused=fused, **options)
        wrapper = MultitaskOptimizerWrapper(sgd)
        train(model, wrapper, "aab+b")
        assert sgd.param_groups[0]["fused"] is fused
        found.append(snapshot(model, wrapper))
    torch.testing.assert_close(found[1], found[0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("zero", [False, True])
def test_gradients_may_have_any_layout(count, zero):
    shape, layout = (4, 3, 2, 2), torch.channels_last
    weights = [
        Parameter(torch.ones(shape).to(memory_format=layout)) for _ in range(count)
    ]
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD(weights, lr=0.5))
    for weight in weights:
        weight.grad = torch.full_like(weight, float(not zero))
        assert not weight.grad.is_contiguous()
    wrapper.step()
    assert all((weight == (1.0 if zero else 0.5)).all() for weight in weights)


@everyone
def test_a_zero_gradient_is_as_good_as_none(make):
    bare, ours = TwoHeads(), TwoHeads()
    optimizer, wrapper = make(bare.parameters()), wrapped(make, ours)
    pattern = "+aab+b0a"
    train(ours, wrapper, pattern)
    for letter, inputs in zip(pattern, batches(len(pattern)), strict=True):
        optimizer.zero_grad()
        bare(inputs, float(letter in "a+"), float(letter in "b+")).backward()
        for parameter in bare.parameters():
            if not parameter.grad.any():
                parameter.grad = None
        optimizer.step()
    assert_same_bits(snapshot(ours, wrapper), snapshot(bare, optimizer))


@everyone
def test_a_head_without_its_task_keeps_weights_and_state_to_the_bit(make):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    train(model, wrapper, "++")
    for turn, absent in enumerate("baba"):
        before = head(snapshot(model, wrapper), absent)
        present = "ab".replace(absent, "")
        train(model, wrapper, present, seed=turn)
        after = snapshot(model, wrapper)
        assert_same_bits(head(after, absent), before)
        assert wrapper.last_step.skipped == (f"{absent}.weight", f"{absent}.bias")


@everyone
def test_with_nothing_to_apply_nothing_changes(make):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    train(model, wrapper, "++")
    before, groups = snapshot(model, wrapper), [dict(g) for g in wrapper.param_groups]
    train(model, wrapper, "0")
    assert_same_bits(snapshot(model, wrapper), before)
    assert [dict(group) for group in wrapper.param_groups] == groups
    assert wrapper.last_step == (
        False,
        "of 6 gradients 6 all zero",
        tuple(name for name, _ in model.named_parameters()),
    )


@everyone
def test_gradients_are_put_back(make):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    model(torch.ones(2, 3), 1.0, 0.0).backward()
    before = [parameter.grad for parameter in model.parameters()]
    wrapper.step()
    after = [parameter.grad for parameter in model.parameters()]
    assert all(a is b for a, b in zip(before, after, strict=True))


def test_gradients_are_put_back_when_the_step_fails():
    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("out of memory")

    model = TwoHeads()
    wrapper = wrapped(lambda params: Broken(params, lr=0.1), model)
    model(torch.ones(2, 3), 1.0, 0.0).backward()
    before = [parameter.grad for parameter in model.parameters()]
    with pytest.raises(RuntimeError, match="out of memory"):
        wrapper.step()
    after = [parameter.grad for parameter in model.parameters()]
    assert all(a is b for a, b in zip(before, after, strict=True))


@everyone
def test_a_closure_is_called_once_and_its_zeros_are_seen(make):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    before = head(snapshot(model, wrapper), "b")
    calls = []

    def closure():
        wrapper.zero_grad()
        loss = model(torch.ones(2, 3), 1.0, 0.0)
        loss.backward()
        calls.append(loss)
        return loss

    with torch.no_grad():
        assert wrapper.step(closure) is calls[0]
    assert len(calls) == 1
    assert_same_bits(head(snapshot(model, wrapper), "b"), before)
    assert not torch.equal(model.a.weight, TwoHeads().a.weight)


@everyone
def test_the_global_step_advances_even_when_every_gradient_is_zero(make):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    counter = torch.zeros((), dtype=torch.int64)
    wrapper.minimize(lambda: model(torch.ones(2, 3), 1.0, 1.0), counter)
    wrapper.minimize(lambda: model(torch.ones(2, 3), 0.0, 0.0), counter)
    assert counter == 2


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's Adagrad
@pytest.mark.parametrize("make", SPARSE.values(), ids=SPARSE)
def test_sparse_gradients_that_cancel_are_zero(make):
    table, other = (nn.Embedding(5, 2, sparse=True) for _ in range(2))
    model = nn.ModuleList([table, other])
    wrapper = wrapped(make, model)
    for _ in range(2):
        wrapper.zero_grad()
        looked_up = other(torch.tensor([1, 3, 1]))
        (table(torch.tensor([0, 2])).sum() + 2 * looked_up.sum()).backward()
        wrapper.step()
    before = snapshot(model, wrapper)
    wrapper.zero_grad()
    signs = torch.tensor([[1.0], [0.0], [-1.0]])
    looked_up = other(torch.tensor([1, 3, 1])) * signs
    (table(torch.tensor([0, 2])).sum() + looked_up.sum()).backward()
    assert not other.weight.grad.is_coalesced()
    wrapper.step()
    after = snapshot(model, wrapper)
    assert wrapper.last_step.skipped == ("1.weight",)
    assert_same_bits(head(after, "1"), head(before, "1"))
    assert not torch.equal(after["0.weight"], before["0.weight"])


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64]
)
def test_every_dtype_is_filtered(dtype):
    moved, kept, empty = (Parameter(torch.ones(n, dtype=dtype)) for n in (2, 3, 0))
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD([moved, kept, empty], lr=0.5))
    for parameter in (moved, kept, empty):
        parameter.grad = torch.zeros_like(parameter)
    moved.grad[1] = 1.0
    wrapper.step()
    assert moved.tolist() == [1.0, 0.5]
    assert kept.tolist() == [1.0] * 3
    assert len(wrapper.last_step.skipped) == 2


def test_nan_and_infinity_are_applied():
    parameters = [Parameter(torch.ones(2)) for _ in range(2)]
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD(parameters, lr=1.0))
    for parameter, value in zip(parameters, (torch.nan, torch.inf), strict=True):
        parameter.grad = torch.tensor([0.0, value])
    wrapper.step()
    assert parameters[0][1].isnan()
    assert parameters[1].tolist() == [1.0, -torch.inf]
    assert wrapper.last_step == (True, "every gradient had a nonzero element", ())


def test_a_frozen_parameter_is_neither_updated_nor_reported():
    warm, frozen = Parameter(torch.ones(1)), Parameter(torch.ones(1), False)
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD([warm, frozen], lr=0.5))
    warm.sum().backward()
    wrapper.step()
    assert (warm.item(), frozen.item()) == (0.5, 1.0)
    assert wrapper.last_step == (True, "every gradient had a nonzero element", ())


@pytest.mark.parametrize("freezes", [False, True])
def test_what_is_frozen_or_trained_later_does_not_change_the_report(freezes):
    warm, other = Parameter(torch.ones(1)), Parameter(torch.ones(1), freezes)
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD([warm, other], lr=0.5))
    warm.grad = torch.ones(1)
    wrapper.step()
    before = wrapper.last_step
    assert len(before.skipped) == freezes
    other.requires_grad_(not freezes)
    assert wrapper.last_step == before


def test_a_step_of_frozen_parameters_only_is_a_legal_no_op():
    frozen = Parameter(torch.ones(1), requires_grad=False)
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD([frozen], lr=0.5))
    wrapper.step()
    assert frozen.item() == 1.0
    assert wrapper.last_step.skipped == ()


def test_unnamed_parameters_are_reported_by_their_place():
    first, second, third = (Parameter(torch.ones(1)) for _ in range(3))
    groups = [{"params": [first]}, {"params": [second, third]}]
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD(groups, lr=0.5))
    assert wrapper.last_step == NO_STEP
    (first + 0 * second).sum().backward()
    wrapper.step()
    places = "param_groups[1]['params'][0]", "param_groups[1]['params'][1]"
    reason = "of 3 gradients 1 all zero and 1 absent"
    assert wrapper.last_step == (True, reason, places)


def test_a_parameter_used_twice_gets_the_sum_of_its_gradients():
    tied = Parameter(torch.ones(2))
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD([tied], lr=0.5))
    (tied.sum() - tied.sum()).backward()
    wrapper.step()
    assert not wrapper.last_step.applied
    wrapper.zero_grad()
    (tied.sum() + tied.sum()).backward()
    wrapper.step()
    assert tied.tolist() == [0.0, 0.0]


@everyone
def test_wrapping_twice_is_wrapping_once(make):
    once, twice = TwoHeads(), TwoHeads()
    inner, outer = wrapped(make, once), MultitaskOptimizerWrapper(wrapped(make, twice))
    train(once, inner, "+ab0")
    train(twice, outer, "+ab0")
    assert_same_bits(snapshot(twice, outer), snapshot(once, inner))
    assert outer.last_step == inner.last_step


def test_by_default_the_wrapped_optimizer_is_untouched():
    model = TwoHeads()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before, public = dict(vars(sgd)), dict(sgd.defaults)
    wrapper = MultitaskOptimizerWrapper(sgd)
    assert (vars(sgd), sgd.defaults) == (before, public)
    train(model, wrapper, "a")
    assert model.b.weight not in sgd.state
    train(model, sgd, "a")
    assert model.b.weight in sgd.state


def test_integer_gradients_are_not_clipped() -> None:
    pairs = [(torch.ones(2, dtype=torch.int64), Parameter(torch.ones(2)))]
    with pytest.raises(LockstepError, match="int64"):
        clip_gradients_by_global_norm(pairs, 1.0)
