"""Row clipping around every optimizer of torch: which rows, when, and how much."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from lockstep.pytorch import MultitaskOptimizerWrapper, VariableClippingOptimizer
from lockstep.pytorch.tests.clipping.models import clipping, stepped
from lockstep.pytorch.tests.subjects import (
    ALL,
    TF1,
    TORCH,
    TwoHeads,
    assert_same_bits,
    snapshot,
    train,
)

LIMIT = 0.05
WEIGHTS = {"body.weight": [1], "a.weight": (-1,)}
everyone = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
both = pytest.mark.parametrize("strictly", [False, True], ids=["default", "strict"])


def wrapped(make, model: nn.Module, **options) -> VariableClippingOptimizer:
    """Clip the rows of two weights of ``model``, named."""
    opt = make(model.named_parameters())
    return VariableClippingOptimizer(opt, WEIGHTS, LIMIT, **options)


@everyone
def test_each_step_is_the_bare_step_and_then_a_clip_of_the_rows_above(make):
    bare, ours = TwoHeads(), TwoHeads()
    optimizer, wrapper = make(bare.parameters()), wrapped(make, ours)
    felt = False
    for seed in range(4):
        bare.load_state_dict(ours.state_dict())
        train(bare, optimizer, "+", seed)
        train(ours, wrapper, "+", seed)
        for name, weight in bare.named_parameters():
            clipped = ours.get_parameter(name).detach()
            if name not in WEIGHTS:
                assert torch.equal(clipped, weight)
                continue
            norms = weight.detach().norm(dim=1)
            assert torch.equal(clipped[norms < LIMIT], weight[norms < LIMIT])
            scaled = weight / norms.clamp(min=LIMIT)[:, None] * LIMIT
            torch.testing.assert_close(clipped, scaled, rtol=1e-6, atol=1e-7)
            felt |= bool((norms > LIMIT).any())
    assert felt


@everyone
def test_an_absent_gradient_does_not_clip_and_a_zero_one_does(make):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    before = model.a.weight.detach().clone()
    assert (before.norm(dim=1) > LIMIT).any()
    model.b.weight.grad = torch.ones_like(model.b.weight)
    wrapper.step()
    assert torch.equal(model.a.weight, before)
    assert "a.weight" in wrapper.last_step.skipped
    model.a.weight.grad = torch.zeros_like(before)
    wrapper.step()
    assert (model.a.weight.norm(dim=1) < LIMIT * 1.000001).all()


AXES = [
    ("rows", [1], [[3.0, 4.0], [0.3, 0.4]], [[0.6, 0.8], [0.3, 0.4]]),
    ("rows, from the end", [-1], [[3.0, 4.0], [0.3, 0.4]], [[0.6, 0.8], [0.3, 0.4]]),
    ("columns", (0,), [[3.0, 0.1], [4.0, 0.2]], [[0.6, 0.1], [0.8, 0.2]]),
    (
        "columns, from the end",
        (-2,),
        [[3.0, 0.1], [4.0, 0.2]],
        [[0.6, 0.1], [0.8, 0.2]],
    ),
    ("the whole", [1, 0], [[2.0, 2.0], [2.0, 2.0]], [[0.5, 0.5], [0.5, 0.5]]),
    ("the elements", [], [[3.0, -4.0], [0.3, 0.4]], [[1.0, -1.0], [0.3, 0.4]]),
    ("zero rows", [1], [[0.0, -0.0], [1.0, 0.0]], [[0.0, -0.0], [1.0, 0.0]]),
]


@pytest.mark.parametrize(
    ("dims", "values", "expected"), [r[1:] for r in AXES], ids=[r[0] for r in AXES]
)
def test_the_norm_is_taken_over_any_axes(dims, values, expected):
    torch.testing.assert_close(stepped(values, dims), torch.tensor(expected))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64]
)
def test_every_dtype_is_clipped(dtype):
    values = torch.tensor([[300, 400], [0.25, 0.5]], dtype=dtype)
    clipped = stepped(values, [1], 2.5)
    assert clipped.dtype == dtype
    expected = torch.tensor([[1.5, 2], [0.25, 0.5]], dtype=dtype)
    torch.testing.assert_close(clipped, expected)


def test_rows_below_the_norm_keep_their_bits():
    values = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    values *= 0.69 / values.norm(dim=1, keepdim=True)
    assert torch.equal(stepped(values, [1], 0.7), values)
    assert not torch.equal(stepped(values, [1], 0.7, strict=True), values)


def test_a_row_that_is_not_finite_shows():
    values = [[torch.nan, 4.0], [torch.inf, 4.0], [3.0, 4.0]]
    got = stepped(values, [1], 2.5)
    assert got[0].isnan().all()
    assert got[1, 0].isnan()
    assert got[1:, 1].tolist() == [0.0, 2.0]


def test_a_weight_may_be_used_twice_in_one_forward_pass():
    table = nn.Embedding(4, 2, sparse=True)
    with torch.no_grad():
        table.weight.fill_(3.0)
    optimizer = clipping(table.weight, [1], rate=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        first, second = table(torch.tensor([0, 1])), table(torch.tensor([1, 1]))
        (first * second).sum().backward()
        optimizer.step()
    assert (table.weight[:2].norm(dim=1) < 1.000001).all()
    assert table.weight[2:].eq(3.0).all()
    assert table.weight.requires_grad
    assert table.weight.is_leaf


def test_tied_weights_are_clipped_once():
    model = nn.ModuleDict({"one": nn.Linear(2, 2), "two": nn.Linear(2, 2)})
    model["two"].weight = model["one"].weight
    sgd = torch.optim.SGD(model.named_parameters(), lr=0.0)
    optimizer = VariableClippingOptimizer(sgd, {"one.weight": [1]}, 0.125)
    sum(part(torch.ones(2)).sum() for part in model.values()).backward()
    optimizer.step()
    assert (model["two"].weight.norm(dim=1) < 0.125001).all()


def test_several_layers_clip_from_the_inside_out():
    parameter = Parameter(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    inner = clipping(parameter, [1], 1.0)
    outer = VariableClippingOptimizer(inner, {parameter: [0]}, 0.5)
    outer.apply_gradients([(torch.zeros(2, 2), parameter)])
    once = torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    expected = once / once.norm(dim=0).clamp(min=0.5) * 0.5
    torch.testing.assert_close(parameter.detach(), expected)


def test_inside_multitask_an_all_zero_gradient_does_not_clip_and_outside_it_does():
    for outside, expected in ((True, [0.6, 0.8]), (False, [3.0, 4.0])):
        parameter = Parameter(torch.tensor([[3.0, 4.0]]))
        other = Parameter(torch.ones(1))
        sgd = torch.optim.SGD([parameter, other], lr=1.0, momentum=0.9)
        if outside:
            multitask = MultitaskOptimizerWrapper(sgd)
            optimizer = VariableClippingOptimizer(multitask, {parameter: [1]}, 1.0)
        else:
            rows_clipped = VariableClippingOptimizer(sgd, {parameter: [1]}, 1.0)
            optimizer = MultitaskOptimizerWrapper(rows_clipped)
        zeros = torch.zeros_like(parameter)
        optimizer.apply_gradients([(zeros, parameter), (torch.ones(1), other)])
        torch.testing.assert_close(parameter.detach()[0], torch.tensor(expected))
        assert parameter not in sgd.state
        assert optimizer.last_step.applied
        assert optimizer.last_step.reason.startswith("of 2 gradients 1 all zero")


def test_one_shot_iterators_are_clipped_and_not_under_strict():
    for strictly, expected in ((False, [0.6, 0.8]), (True, [3.0, 4.0])):
        parameter = Parameter(torch.tensor([3.0, 4.0]))
        optimizer = clipping(parameter, [0], strict=strictly)
        pairs = [(torch.zeros(2), parameter)]
        optimizer.apply_gradients(iter(pairs))
        torch.testing.assert_close(parameter.detach(), torch.tensor(expected))
        optimizer.apply_gradients(pairs)
        torch.testing.assert_close(parameter.detach(), torch.tensor([0.6, 0.8]))


@both
def test_slots_are_reached_and_variables_only_by_default(strictly):
    model = TwoHeads()
    wrapper = wrapped(TF1["Momentum"], model, strict=strictly)
    train(model, wrapper, "+")
    assert wrapper.get_slot(model.a.weight, "momentum") is not None
    assert wrapper.get_slot_names() == ["momentum"]
    assert len(wrapper.variables()) == (0 if strictly else 6)
    assert wrapper.get_name() == "VariableClipping"


@both
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
)
def test_a_copy_clips_its_own_parameters(copied, strictly):
    model = TwoHeads()
    wrapper = wrapped(TORCH["SGD momentum"], model, strict=strictly)
    train(model, wrapper, "+a")
    other, twin = copied((model, wrapper))
    train(model, wrapper, "ab0+")
    train(other, twin, "ab0+")
    assert_same_bits(snapshot(other, twin), snapshot(model, wrapper))
    assert other.a.weight in twin.vars_to_clip_dims


def test_a_step_that_grad_scaler_skips_does_not_clip():
    parameter = Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = clipping(parameter, [1], rate=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for factor, expected in ((torch.inf, [3.0, 4.0]), (1.0, [0.6, 0.8])):
        optimizer.zero_grad()
        scaler.scale(parameter.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.testing.assert_close(parameter.detach()[0], torch.tensor(expected))


def test_hooks_see_the_clipped_weights_and_a_closure_is_called_once():
    parameter = Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer, seen = clipping(parameter, [1], rate=0.0), []
    optimizer.register_step_post_hook(lambda *_: seen.append(parameter.norm().item()))

    def closure():
        seen.append("called")
        loss = parameter.sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure) == 7
    assert seen == ["called", pytest.approx(1.0)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dynamo's own
def test_a_compiled_training_step_gives_the_same_bits():
    plain, compiled = TwoHeads(), TwoHeads()
    one, two = (wrapped(TORCH["Adam"], model) for model in (plain, compiled))

    @torch.compile(backend="eager")
    def step(inputs):
        two.zero_grad()
        compiled(inputs, 1.0, 1.0).backward()
        two.step()

    for _ in range(3):
        one.zero_grad()
        plain(torch.ones(2, 3), 1.0, 1.0).backward()
        one.step()
        step(torch.ones(2, 3))
    torch.compiler.reset()
    assert_same_bits(snapshot(compiled, two), snapshot(plain, one))
