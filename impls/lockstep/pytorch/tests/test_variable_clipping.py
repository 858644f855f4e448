"""Row clipping around every optimizer of torch: which rows, when, and how much."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lockstep.pytorch import (
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    strict,
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

LIMIT = 0.05
WEIGHTS = {"body.weight": [1], "a.weight": (-1,)}
everyone = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
both = pytest.mark.parametrize("strictly", [False, True], ids=["default", "strict"])
ROW_RULES = {
    "SGD": TORCH["SGD"],
    "Adagrad": TORCH["Adagrad"],
    "SparseAdam": lambda params: torch.optim.SparseAdam(params, lr=0.1),
    **TF1,
}


def wrapped(make, model: nn.Module, **options) -> VariableClippingOptimizer:
    """Clip the rows of two weights of ``model``, named."""
    opt = make(model.named_parameters())
    return VariableClippingOptimizer(opt, WEIGHTS, LIMIT, **options)


def clipping(parameter, dims, limit=1.0, rate=1.0, **options):
    """Wrap plain gradient descent on one parameter."""
    sgd = torch.optim.SGD([parameter], lr=rate)
    return VariableClippingOptimizer(sgd, {parameter: dims}, limit, **options)


def stepped(values, dims, limit=1.0, gradient=None, **options):
    """Return what one step on a gradient, zero if None, makes of ``values``."""
    parameter = Parameter(torch.as_tensor(values).clone())
    optimizer = clipping(parameter, dims, limit, **options)
    zeros = torch.zeros_like(parameter)
    optimizer.apply_gradients([(zeros if gradient is None else gradient, parameter)])
    return parameter.detach()


def rows(indices, values, height: int = 4) -> torch.Tensor:
    """Return a sparse gradient of rows, as they come."""
    return torch.sparse_coo_tensor(
        torch.tensor([indices]), torch.tensor(values), (height, 2)
    )


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


@both
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's Adagrad
@pytest.mark.parametrize("make", ROW_RULES.values(), ids=ROW_RULES)
def test_only_the_named_rows_of_a_table_are_clipped(make, strictly):
    bare, ours = (nn.Embedding(6, 3, sparse=True) for _ in range(2))
    ours.load_state_dict(bare.state_dict())
    optimizer = make(bare.parameters())
    named = make(ours.named_parameters())
    limit = 0.1
    wrapper = VariableClippingOptimizer(named, {"weight": [1]}, limit, strict=strictly)
    ids = torch.tensor([4, 1])
    for table, opt in (bare, optimizer), (ours, wrapper):
        table(ids).sum().backward()
        opt.step()
    others = [0, 2, 3, 5]
    assert torch.equal(ours.weight[others], bare.weight[others])
    assert (bare.weight[ids].norm(dim=1) > limit).any()
    assert (ours.weight[ids].norm(dim=1) < limit * 1.00001).all()
    assert wrapper.last_step.reason.endswith("of 2 rows clipped")


def test_a_row_named_three_times_is_clipped_once():
    values = [[3.0, 4.0], [0.3, 0.4], [6.0, 8.0], [1.0, 0.0]]
    gradient = rows([2, 0, 2, 2], [[0.0, 0.0]] * 4)
    got = stepped(values, [1], gradient=gradient)
    expected = [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8], [1.0, 0.0]]
    torch.testing.assert_close(got, torch.tensor(expected))
    parameter = Parameter(torch.tensor(values))
    optimizer = clipping(parameter, [1])
    optimizer.apply_gradients([(gradient, parameter)])
    reason = "every gradient was present; 2 of 2 rows clipped"
    assert optimizer.last_step == (True, reason, ())
    original = stepped(values, [1], gradient=gradient, strict=True)
    torch.testing.assert_close(original[2], torch.tensor([6 - 3 * 5.4, 8 - 3 * 7.2]))


def test_a_gradient_without_rows_clips_nothing():
    values = [[3.0, 4.0]] * 4
    empty = torch.sparse_coo_tensor(torch.zeros(1, 0).long(), torch.zeros(0, 2), (4, 2))
    assert stepped(values, [1], gradient=empty).tolist() == values


class Elements(TorchDispatchMode):
    """Count the elements of every tensor that an operation returns or receives."""

    def __init__(self, apart_from: torch.Tensor) -> None:
        super().__init__()
        self.count, self.table = 0, apart_from

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        by_rows = func in (
            torch.ops.aten.index_select.default,
            torch.ops.aten.index_copy_.default,
        )
        for leaf in tree_leaves((args, result)):
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                touched = leaf.data_ptr() == self.table.data_ptr()
                self.count += 0 if touched and by_rows else leaf.numel()
        return result


def test_the_work_does_not_grow_with_the_table():
    def elements(height: int) -> int:
        table = nn.Embedding(height, 4, sparse=True)
        optimizer = clipping(table.weight, [-1])
        table(torch.tensor([1, 5, 1])).sum().backward()
        weight = table.weight
        with Elements(weight) as counted:
            optimizer.clip({weight: weight.grad._indices()[0]})
        return counted.count

    assert elements(100_000) == elements(10)
    assert elements(10) > 0


def test_over_axis_0_the_whole_table_is_clipped_with_a_warning():
    values = torch.tensor([[3.0, 0.1], [4.0, 0.2], [0.0, 0.0], [0.0, 0.0]])
    gradient = rows([1], [[0.0, 0.0]])
    for dims, options in (([0], {}), ([-2], {}), ([0], {"strict": True})):
        with pytest.warns(UserWarning, match="the whole variable is read"):
            got = stepped(values, dims, gradient=gradient, **options)
        torch.testing.assert_close(got[:2, 0], torch.tensor([0.6, 0.8]))


def test_strict_takes_the_test_for_axis_0_literally():
    values = torch.tensor([[3.0, 0.1], [4.0, 0.2], [0.0, 0.0], [0.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = stepped(values, [-2], gradient=rows([1], [[0.0, 0.0]]), strict=True)
    torch.testing.assert_close(got[:2, 0], torch.tensor([3.0, 1.0]))


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


W, STRANGER = Parameter(torch.full((2, 3), 7.0)), Parameter(torch.ones(4))
GOOD = {"opt": torch.optim.SGD([("w", W)], 0.1), "dims": {W: [1]}, "max_norm": 1.0}
BAD = [
    ("no optimizer", {"opt": 3}, TypeError, r"a torch\.optim\.Optimizer, got int"),
    ("a class", {"opt": torch.optim.SGD}, TypeError, "the class SGD; pass an instance"),
    ("LBFGS", {"opt": torch.optim.LBFGS([W]), "dims": {}}, ValueError, "closure"),
    ("no mapping", {"dims": [W]}, TypeError, "a dict {variable: axes}, got list"),
    ("an integer", {"dims": {W: 1}}, TypeError, "a list of axes for 'w', got 1; give"),
    ("None", {"dims": {W: None}}, TypeError, "a list of axes for 'w', got None"),
    ("a string", {"dims": {W: "1"}}, TypeError, "a list of axes for 'w', got '1'"),
    ("a fraction", {"dims": {W: [1.0]}}, TypeError, r"got \[1.0\]"),
    ("a truth", {"dims": {W: [True]}}, TypeError, r"got \[True\]"),
    (
        "an axis too far",
        {"dims": {W: [2]}},
        ValueError,
        "axes of 'w', which has 2, got",
    ),
    ("before the first", {"dims": {W: [-3]}}, ValueError, "got -3; axes count from 0"),
    ("an axis twice", {"dims": {W: [1, -1]}}, ValueError, r"once, got \[1, -1\]"),
    ("listed twice", {"dims": {W: [1], "w": [0]}}, ValueError, "once, got 'w' twice"),
    (
        "a number as key",
        {"dims": {3: [1]}},
        TypeError,
        "or their names as keys, got int",
    ),
    ("a stranger", {"dims": {STRANGER: [0]}}, ValueError, r"tensor of shape \[4\]'; l"),
    ("a wrong name", {"dims": {"W1": [1]}}, ValueError, "got 'W1'; did you mean 'w'?"),
    ("no name", {"name": ""}, ValueError, "name: expected a name, got ''"),
    *[
        (f"max_norm {limit}", {"max_norm": limit}, ValueError, "a finite number > 0")
        for limit in (0, -1.0, torch.nan, torch.inf, None, "1")
    ],
]


@pytest.mark.parametrize(
    ("changes", "error", "said"), [r[1:] for r in BAD], ids=[r[0] for r in BAD]
)
def test_bad_input_is_refused_in_one_sentence_and_changes_nothing(changes, error, said):
    given = GOOD | changes
    opt, dims, limit = (given.pop(name) for name in ("opt", "dims", "max_norm"))
    before = dict(vars(opt)) if isinstance(opt, torch.optim.Optimizer) else None
    with pytest.raises(error, match=said):
        VariableClippingOptimizer(opt, dims, limit, **given)
    assert before is None or vars(opt) == before
    assert W.eq(7.0).all()


def test_strict_takes_any_limit_and_checks_axes_at_the_step():
    parameter = Parameter(torch.tensor([[3.0, 4.0]]))
    flipped = strict.VariableClippingOptimizer
    sgd = torch.optim.SGD([parameter], lr=1.0)
    flipped(sgd, {parameter: [1]}, -1.0).apply_gradients(
        [(torch.zeros(1, 2), parameter)]
    )
    torch.testing.assert_close(parameter.detach(), torch.tensor([[-0.6, -0.8]]))
    optimizer = flipped(sgd, {parameter: [2], STRANGER: [0]}, 1.0)
    with pytest.raises(ValueError, match="which has 2, got 2"):
        optimizer.apply_gradients([(torch.ones(1, 2), parameter)])
    torch.testing.assert_close(parameter.detach(), torch.tensor([[-0.6, -0.8]]))
    with pytest.raises(TypeError, match="a list of axes"):
        flipped(sgd, {parameter: 1}, 1.0)


def test_strict_norms_of_float16_overflow():
    values = torch.tensor([[300.0, 400.0]], dtype=torch.float16)
    assert stepped(values, [1], 2.0, strict=True).tolist() == [[0.0, 0.0]]


def test_bad_pairs_change_nothing():
    parameter = Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = clipping(parameter, [1])
    for pairs, error in (
        ([], ValueError),
        ([(None, parameter)], ValueError),
        ([parameter], TypeError),
        ([(torch.ones(3), parameter)], ValueError),
    ):
        with pytest.raises(error):
            optimizer.apply_gradients(pairs)
    assert parameter.tolist() == [[3.0, 4.0]]
    assert optimizer.last_step is None
