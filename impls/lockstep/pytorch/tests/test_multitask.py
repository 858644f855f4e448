"""The multitask wrapper around every optimizer of torch."""

from __future__ import annotations

import copy
import pickle
from weakref import ref

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from lockstep.interface import NO_GRADIENTS, NO_STEP
from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.tests.subjects import (
    ALL,
    FUSED,
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
LARGE = 5 * 4096 + 1


def wrapped(make, model: nn.Module) -> MultitaskOptimizerWrapper:
    """Wrap an optimizer of all parameters of ``model``, named."""
    return MultitaskOptimizerWrapper(make(model.named_parameters()))


def head(state: dict, name: str) -> dict:
    """Return the part of a snapshot that belongs to one part of the model."""
    return {key: value for key, value in state.items() if key.startswith(f"{name}.")}


def last_of(count: int, value: float, dtype: torch.dtype = torch.float32):
    """Return ``count`` zeros but for the last element."""
    tensor = torch.zeros(count, dtype=dtype)
    tensor[-1] = value
    return tensor


def rows(indices: list[int], values: list[list[float]]):
    """Return a sparse gradient of shape [4, 2], as it comes out of an embedding."""
    found = torch.tensor(values, dtype=torch.float32).reshape(len(indices), 2)
    index = torch.tensor([indices], dtype=torch.int64)
    return torch.sparse_coo_tensor(index, found, (4, 2), check_invariants=True)


ZERO = {
    "zeros": torch.zeros(3, 2),
    "minus zero": torch.tensor([-0.0, 0.0]),
    "scalar zero": torch.zeros(()),
    "empty": torch.zeros(0, 3),
    "large": torch.zeros(LARGE),
    "large, of minus zeros": -torch.zeros(LARGE),
    "float16": torch.zeros(5, dtype=torch.float16),
    "bfloat16": torch.zeros(5, dtype=torch.bfloat16),
    "float64": torch.zeros(5, dtype=torch.float64),
    "complex": torch.zeros(5, dtype=torch.complex64),
    "not contiguous": torch.zeros(4, 6)[:, ::2],
    "no rows": rows([], []),
    "rows of zeros": rows([1, 3], [[0.0, -0.0], [0.0, 0.0]]),
    "rows that cancel": rows([2, 0, 2], [[1.5, -2.0], [0.0, 0.0], [-1.5, 2.0]]),
}
NONZERO = {
    "one": torch.tensor([0.0, 1.0]),
    "first element": torch.tensor([1.0, 0.0]),
    "first element, subnormal": torch.tensor([1e-45, 0.0]),
    "scalar": torch.tensor(2.0),
    "nan": torch.tensor([0.0, torch.nan]),
    "nan first": torch.tensor([torch.nan, 0.0]),
    "infinity": torch.tensor([0.0, -torch.inf]),
    "beyond the first chunk": last_of(4097, 1e-45),
    "the end of a large one": last_of(LARGE, -1.0),
    "underflows when squared": last_of(5, 1e-30),
    "float16 subnormal": last_of(5, 6e-8, torch.float16),
    "bfloat16": last_of(5, 1.0, torch.bfloat16),
    "float64": last_of(5, 1e-300, torch.float64),
    "imaginary": last_of(5, 1j, torch.complex64),
    "not contiguous": torch.eye(4)[1:, :3],
    "transposed": torch.tensor([[0.0, 1.0], [0.0, 0.0]]).t(),
    "expanded": torch.tensor([[0.0], [1.0]]).expand(2, 3),
    "rows": rows([1], [[0.0, 1.0]]),
    "rows that do not quite cancel": rows([2, 2], [[1.0, 1.0], [-1.0, 1.0]]),
}


def step_on(gradients: list[torch.Tensor], make=None) -> MultitaskOptimizerWrapper:
    """Return a wrapper of gradient descent after a step on these gradients."""
    weights = [Parameter(torch.zeros_like(g.to_dense())) for g in gradients]
    named = [(str(k), weight) for k, weight in enumerate(weights)]
    optimizer = MultitaskOptimizerWrapper(torch.optim.SGD(named, lr=0.5))
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    optimizer.step()
    return optimizer


@pytest.mark.parametrize("gradient", ZERO.values(), ids=ZERO)
def test_a_gradient_without_a_nonzero_element_is_skipped(gradient):
    assert step_on([gradient]).last_step.skipped == ("0",)


@pytest.mark.parametrize("gradient", NONZERO.values(), ids=NONZERO)
def test_a_gradient_with_a_nonzero_element_is_applied(gradient):
    assert step_on([gradient]).last_step.skipped == ()


@pytest.mark.parametrize("seed", range(3))
def test_among_others_each_gradient_gets_its_own_answer(seed):
    table = [(g, True) for g in ZERO.values()] + [(g, False) for g in NONZERO.values()]
    table += table  # So that several share a shape.
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    gradients, is_zero = zip(*(table[k] for k in order), strict=True)
    expected = tuple(str(k) for k, zero in enumerate(is_zero) if zero)
    assert step_on(gradients).last_step.skipped == expected


@everyone
def test_without_zero_gradients_the_bits_are_those_of_the_bare_optimizer(make):
    bare, ours = TwoHeads(), TwoHeads()
    optimizer, wrapper = make(bare.parameters()), wrapped(make, ours)
    train(bare, optimizer, "+++")
    train(ours, wrapper, "+++")
    assert_same_bits(snapshot(ours, wrapper), snapshot(bare, optimizer))
    assert not torch.equal(ours.a.weight, TwoHeads().a.weight)


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
def test_a_skipped_parameter_keeps_every_bit_of_weight_and_state(make):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    train(model, wrapper, "++")
    for turn, absent in enumerate("baba"):
        before = head(snapshot(model, wrapper), absent)
        train(model, wrapper, "ab".replace(absent, ""), seed=turn)
        assert_same_bits(head(snapshot(model, wrapper), absent), before)
        assert wrapper.last_step.skipped == (f"{absent}.weight", f"{absent}.bias")
    before, groups = snapshot(model, wrapper), copy.deepcopy(wrapper.param_groups)
    train(model, wrapper, "0")
    assert_same_bits(snapshot(model, wrapper), before)
    assert [g | {"params": 0} for g in wrapper.param_groups] == [
        group | {"params": 0} for group in groups
    ]
    names = tuple(name for name, _ in model.named_parameters())
    assert wrapper.last_step == (False, "of 6 gradients 6 all zero", names)


@everyone
@pytest.mark.parametrize("through", ["load", "deepcopy", "pickle"])
def test_a_state_saved_and_loaded_in_the_middle_changes_no_bit(make, through):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    train(model, wrapper, "+a")
    if through == "load":
        twin = TwoHeads()
        other = wrapped(make, twin)
        twin.load_state_dict(model.state_dict())
        other.load_state_dict(copy.deepcopy(wrapper.state_dict()))
    elif through == "deepcopy":
        twin, other = copy.deepcopy((model, wrapper))
    else:
        twin, other = pickle.loads(pickle.dumps((model, wrapper)))
    train(model, wrapper, "ab0+")
    train(twin, other, "ab0+")
    assert_same_bits(snapshot(twin, other), snapshot(model, wrapper))
    assert other.last_step == wrapper.last_step


@everyone
def test_a_stack_equals_its_stages_by_hand(make):
    """Of a loss scale, multitask and row clipping; a power of 2 scales exactly."""
    model, by_hand = TwoHeads(), TwoHeads()
    inner = VariableClippingOptimizer(
        make(model.named_parameters()), {"a.weight": [1]}, 0.5
    )
    stack = MixedPrecisionLossScaleOptimizer(MultitaskOptimizerWrapper(inner), 64.0)
    plain = make(by_hand.parameters())
    clip = VariableClippingOptimizer(
        torch.optim.SGD([by_hand.a.weight], lr=0.0), {by_hand.a.weight: [1]}, 0.5
    )
    for letter, inputs in zip("+ab+0a", batches(6), strict=True):
        tasks = float(letter in "a+"), float(letter in "b+")
        stack.zero_grad()
        stack.scale_loss(model(inputs, *tasks)).backward()
        stack.step()
        plain.zero_grad()
        by_hand(inputs, *tasks).backward()
        for parameter in by_hand.parameters():
            if not parameter.grad.any():
                parameter.grad = None
        plain.step()
        clip.step()
    assert_same_bits(snapshot(model, stack), snapshot(by_hand, plain))


@everyone
def test_wrapping_twice_is_wrapping_once(make):
    once, twice = TwoHeads(), TwoHeads()
    inner, outer = wrapped(make, once), MultitaskOptimizerWrapper(wrapped(make, twice))
    for letter in "+ab0":
        train(once, inner, letter)
        train(twice, outer, letter)
        assert outer.last_step == inner.last_step
    assert_same_bits(snapshot(twice, outer), snapshot(once, inner))


@pytest.mark.parametrize("other", [{}, {"nesterov": True}])
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
    # The fused kernel rounds its products and sums in another order.
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
    wrapper.step()
    assert all((weight == (1.0 if zero else 0.5)).all() for weight in weights)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's Adagrad
@pytest.mark.parametrize("make", SPARSE.values(), ids=SPARSE)
def test_sparse_gradients_that_cancel_are_zero(make):
    table, other = (nn.Embedding(5, 2, sparse=True) for _ in range(2))
    model = nn.ModuleList([table, other])
    wrapper = wrapped(make, model)
    for factor in (2.0, torch.tensor([[1.0], [0.0], [-1.0]])):
        before = snapshot(model, wrapper)
        wrapper.zero_grad()
        looked_up = other(torch.tensor([1, 3, 1])) * factor
        (table(torch.tensor([0, 2])).sum() + looked_up.sum()).backward()
        wrapper.step()
    after = snapshot(model, wrapper)
    assert wrapper.last_step.skipped == ("1.weight",)
    assert_same_bits(head(after, "1"), head(before, "1"))
    assert not torch.equal(after["0.weight"], before["0.weight"])


@pytest.mark.parametrize("scale", [1.0, 2.0, 3.0, 1024.0, 2.0**24 + 2])
@pytest.mark.parametrize("make", FUSED.values(), ids=FUSED)
def test_a_scaled_gradient_that_unscales_to_zero_is_zero(make, scale):
    """Around a fused optimizer, which divides after the test for zeros."""
    weights = [Parameter(torch.ones(3)) for _ in range(3)]
    inner = MultitaskOptimizerWrapper(make(weights))
    optimizer = MixedPrecisionLossScaleOptimizer(inner, scale)
    optimizer.scale_loss(weights[0].sum()).backward()
    vanishes = bool(1e-45 / torch.tensor(scale) == 0)
    weights[1].grad, weights[2].grad = last_of(3, 1e-45), last_of(3, scale)
    optimizer.step()
    assert (weights[1] in inner.state or bool(weights[1].grad.any())) == (not vanishes)
    assert not torch.equal(weights[2], torch.ones(3))


@everyone
def test_a_closure_is_called_once_and_its_zeros_are_found(make):
    model = TwoHeads()
    wrapper = wrapped(make, model)
    before = head(snapshot(model, wrapper), "b")
    losses = []

    def closure():
        wrapper.zero_grad()
        loss = model(torch.ones(2, 3), 1.0, 0.0)
        loss.backward()
        losses.append(loss)
        return loss

    with torch.no_grad():
        assert wrapper.step(closure) is losses[0]
    assert len(losses) == 1
    assert_same_bits(head(snapshot(model, wrapper), "b"), before)
    assert not torch.equal(model.a.weight, TwoHeads().a.weight)


@pytest.mark.parametrize("fails", [False, True])
def test_gradients_are_put_back(fails):
    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            if fails:
                raise RuntimeError("out of memory")
            return super().step(closure)

    model = TwoHeads()
    wrapper = wrapped(lambda params: Broken(params, lr=0.1), model)
    model(torch.ones(2, 3), 1.0, 0.0).backward()
    before = [parameter.grad for parameter in model.parameters()]
    try:
        wrapper.step()
    except RuntimeError:
        assert fails
    after = [parameter.grad for parameter in model.parameters()]
    assert all(a is b for a, b in zip(before, after, strict=True))


def test_the_global_step_advances_even_if_every_gradient_is_zero():
    model = TwoHeads()
    wrapper = wrapped(TORCH["Adam"], model)
    counter = torch.zeros((), dtype=torch.int64)
    wrapper.minimize(lambda: model(torch.ones(2, 3), 1.0, 1.0), counter)
    wrapper.minimize(lambda: model(torch.ones(2, 3), 0.0, 0.0), counter)
    assert counter == 2


def test_the_wrapped_optimizer_is_untouched():
    model = TwoHeads()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before, public = dict(vars(sgd)), dict(sgd.defaults)
    wrapper = MultitaskOptimizerWrapper(sgd)
    assert (vars(sgd), sgd.defaults) == (before, public)
    train(model, wrapper, "a")
    assert model.b.weight not in sgd.state
    train(model, sgd, "a")
    assert model.b.weight in sgd.state


# Gradients of three parameters -> what the report says of them; None: absent.
REPORTS = [
    ([1.0, 1.0, 1.0], True, "every gradient had a nonzero element", ()),
    ([1.0, 0.0, None], True, "of 3 gradients 1 all zero, 1 absent", ("b", "c")),
    ([0.0, 0.0, 0.0], False, "of 3 gradients 3 all zero", ("a", "b", "c")),
    ([0.0, torch.nan, 1.0], True, "of 3 gradients 1 all zero, 1 not finite", ("a",)),
    ([torch.inf, -torch.inf, 1.0], True, "of 3 gradients 2 not finite", ()),
    ([None, None, None], False, NO_GRADIENTS.reason, ()),
]


def reported(values: list[float | None]) -> tuple[MultitaskOptimizerWrapper, list]:
    """Return a wrapper of three named parameters, with these gradients, and them."""
    weights = [(name, Parameter(torch.ones(2))) for name in "abc"]
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD(weights, lr=0.5))
    for (_, weight), value in zip(weights, values, strict=True):
        weight.grad = None if value is None else last_of(2, value)
    return wrapper, [weight for _, weight in weights]


@pytest.mark.parametrize(("values", "applied", "reason", "skipped"), REPORTS)
def test_a_report_is_true(values, applied, reason, skipped):
    wrapper, weights = reported(values)
    assert wrapper.last_step == NO_STEP
    before = [weight.detach().clone() for weight in weights]
    wrapper.step()
    assert wrapper.last_step == (applied, reason, skipped)
    moved = [not torch.equal(w, b) for w, b in zip(weights, before, strict=True)]
    assert any(moved) == applied
    if skipped:
        assert [not m for m in moved] == [name in skipped for name in "abc"]


@pytest.mark.parametrize("to_none", [False, True])
def test_of_gradients_that_are_gone_a_report_counts_none_as_not_finite(to_none):
    wrapper, weights = reported([torch.nan, 1.0, 1.0])
    wrapper.step()
    assert "1 not finite" in wrapper.last_step.reason
    wrapper.zero_grad(set_to_none=to_none)
    weights[1].grad = torch.full((2,), torch.inf)
    assert wrapper.last_step == (True, "every gradient had a nonzero element", ())


def test_a_report_keeps_no_gradient_in_memory():
    wrapper, weights = reported([1.0, 1.0, 0.0])
    wrapper.step()
    gradients = [ref(weight.grad) for weight in weights]
    wrapper.zero_grad()
    assert [gradient() for gradient in gradients] == [None] * 3


@pytest.mark.parametrize("freezes", [False, True])
def test_a_frozen_parameter_is_neither_updated_nor_reported(freezes):
    """What is frozen or trained later does not change the report."""
    warm, other = Parameter(torch.ones(1)), Parameter(torch.ones(1), not freezes)
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD([warm, other], lr=0.5))
    warm.grad = torch.ones(1)
    wrapper.step()
    before = wrapper.last_step
    assert len(before.skipped) == (not freezes)
    other.requires_grad_(freezes)
    assert wrapper.last_step == before
    assert (warm.item(), other.item()) == (0.5, 1.0)


def test_unnamed_parameters_are_reported_by_their_place():
    first, second, third = (Parameter(torch.ones(1)) for _ in range(3))
    groups = [{"params": [first]}, {"params": [second, third]}]
    wrapper = MultitaskOptimizerWrapper(torch.optim.SGD(groups, lr=0.5))
    (first + 0 * second).sum().backward()
    wrapper.step()
    places = "param_groups[1]['params'][0]", "param_groups[1]['params'][1]"
    assert wrapper.last_step.skipped == places


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


@pytest.mark.parametrize(("multiple", "is_zero"), [(4, True), (5, False)])
def test_a_gradient_that_unscaling_rounds_to_zero_is_zero(multiple, is_zero):
    # A fused optimizer divides as it updates: by 8, half of 2^-149 becomes 0.
    weight, other = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    adam = torch.optim.Adam([weight, other], lr=0.5, fused=True)
    optimizer = MixedPrecisionLossScaleOptimizer(MultitaskOptimizerWrapper(adam), 8.0)
    optimizer.scale_loss(other.sum()).backward()
    weight.grad = torch.full((2,), multiple * 2.0**-149)
    optimizer.step()
    assert (weight not in adam.state) == is_zero
    assert other in adam.state
