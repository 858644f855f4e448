"""Row clipping around every optimizer of torch."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lockstep.errors import AxesError, LockstepError, NotAnOptimizerError
from lockstep.interface import NO_GRADIENTS, NO_STEP
from lockstep.pytorch import (
    MixedPrecisionOptimizerWrapper,
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

LIMIT = 0.05
WEIGHTS = {"body.weight": [1], "a.weight": (-1,)}
everyone = pytest.mark.parametrize("make", ALL.values(), ids=ALL)
# Dtype -> the share of the limit by which a clipped row may be below it, at the most.
SHARES = {
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-7,
    torch.float32: 4e-7,
    torch.float64: 2.3e-15,
}


def wrapped(make, model: nn.Module) -> VariableClippingOptimizer:
    """Clip the rows of two weights of ``model``, named."""
    return VariableClippingOptimizer(make(model.named_parameters()), WEIGHTS, LIMIT)


def clipping(parameter, dims, limit=1.0, rate=1.0) -> VariableClippingOptimizer:
    """Wrap plain gradient descent on one parameter."""
    sgd = torch.optim.SGD([parameter], lr=rate)
    return VariableClippingOptimizer(sgd, {parameter: dims}, limit)


def stepped(values, dims, limit=1.0, gradient=None) -> Tensor:
    """Return what one step on a gradient, zero if None, makes of ``values``."""
    parameter = Parameter(torch.as_tensor(values).clone())
    optimizer = clipping(parameter, dims, limit)
    zeros = torch.zeros_like(parameter)
    optimizer.apply_gradients([(zeros if gradient is None else gradient, parameter)])
    return parameter.detach()


def rows(indices: list[int], values: list[list[float]], height: int = 4) -> Tensor:
    """Return a sparse gradient of rows, as they come."""
    index = torch.tensor([indices], dtype=torch.int64)
    found = torch.tensor(values).reshape(len(indices), 2)
    return torch.sparse_coo_tensor(index, found, (height, 2), check_invariants=True)


@everyone
def test_each_step_is_the_bare_step_and_then_a_clip_of_the_rows_above(make):
    bare, ours = TwoHeads(), TwoHeads()
    optimizer, wrapper = make(bare.parameters()), wrapped(make, ours)
    felt = False
    for seed in range(3):
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
            # Two roundings of float32, in another order.
            torch.testing.assert_close(clipped, scaled, rtol=1e-6, atol=1e-7)
            felt |= bool((norms > LIMIT).any())
    assert felt


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


AXES = [
    ("rows", [1], [[3.0, 4.0], [0.3, 0.4]], [[0.6, 0.8], [0.3, 0.4]]),
    ("rows, from the end", [-1], [[3.0, 4.0], [0.3, 0.4]], [[0.6, 0.8], [0.3, 0.4]]),
    ("columns", (0,), [[3.0, 0.1], [4.0, 0.2]], [[0.6, 0.1], [0.8, 0.2]]),
    ("columns, once", iter([-2]), [[3.0, 0.1], [4.0, 0.2]], [[0.6, 0.1], [0.8, 0.2]]),
    ("the whole", [1, 0], [[2.0, 2.0], [2.0, 2.0]], [[0.5, 0.5], [0.5, 0.5]]),
    ("the elements", [], [[3.0, -4.0], [0.3, 0.4]], [[1.0, -1.0], [0.3, 0.4]]),
    ("zero rows", [1], [[0.0, -0.0], [1.0, 0.0]], [[0.0, -0.0], [1.0, 0.0]]),
    ("no rows", [1], torch.zeros(0, 2), torch.zeros(0, 2)),
    ("rows without elements", [1], torch.zeros(2, 0), torch.zeros(2, 0)),
    ("a number", [], 3.0, 1.0),
    ("squares beyond float32", [1], [[3e30, 4e30]], [[0.6, 0.8]]),
    ("nan", [1], [[torch.nan, 4.0], [3.0, 4.0]], [[torch.nan] * 2, [0.6, 0.8]]),
    ("infinity", [1], [[torch.inf, 4.0]], [[torch.nan, 0.0]]),
]


@pytest.mark.parametrize(
    ("dims", "values", "expected"), [r[1:] for r in AXES], ids=[r[0] for r in AXES]
)
def test_the_norm_is_taken_over_any_axes(dims, values, expected):
    got = stepped(values, dims)
    torch.testing.assert_close(got, torch.as_tensor(expected), equal_nan=True)


def long_rows(length: float, width: int, dtype: torch.dtype, count=200) -> Tensor:
    """Return rows of about this length."""
    generator = torch.Generator().manual_seed(7)
    drawn = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return (drawn * length / drawn.norm(dim=1, keepdim=True)).to(dtype)


@pytest.mark.parametrize("dtype", SHARES, ids=str)
@pytest.mark.parametrize("length", [0.31, 1.0, 300.0])
@pytest.mark.parametrize("width", [1, 2, 64])
def test_a_clipped_row_is_at_the_limit_or_just_below_and_stays(dtype, length, width):
    limit = 0.3 if dtype == torch.float64 else torch.tensor(0.3).item()
    clipped = stepped(long_rows(length, width, dtype), [1], 0.3)
    norms = clipped.double().norm(dim=1)
    assert norms.max() <= limit
    assert norms.min() >= limit * (1 - SHARES[dtype])
    assert torch.equal(stepped(clipped, [1], 0.3), clipped)


@pytest.mark.parametrize("axes", [[], [0], [1], [2], [1, 2], [0, 2]], ids=str)
@pytest.mark.parametrize("dtype", SHARES, ids=str)
def test_clipping_again_over_any_axes_changes_nothing(axes, dtype):
    values = long_rows(3.0, 20, dtype, 12).reshape(12, 4, 5)
    values[:3] *= 0.01
    for start in values, values.transpose(1, 2).contiguous().transpose(1, 2):
        clipped = stepped(start, axes, 0.3)
        assert not torch.equal(clipped, start)
        assert torch.equal(stepped(clipped, axes, 0.3), clipped)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("dtype", SHARES, ids=str)
def test_rows_up_to_the_limit_keep_their_bits(dtype, few):
    """Also just below it, and beside one that is clipped."""
    values = long_rows(0.6999, 3, dtype, 1000)
    limit = values.double().norm(dim=1).max().item() * (1 + 1e-6)
    values[0] *= 2.0 if few else 1.0
    got = stepped(values, [1], limit)
    assert torch.equal(got[1:], values[1:])
    assert torch.equal(got[0], values[0]) != few


def test_a_row_exactly_at_the_limit_is_not_clipped():
    parameter = Parameter(torch.tensor([[5.0, 0.0], [3.0, -4.0]]))
    before = parameter.detach().clone()
    optimizer = clipping(parameter, [1], 5.0)
    parameter.grad = torch.zeros_like(before)
    optimizer.step()
    assert torch.equal(parameter, before)
    assert "; 0 of 2" in optimizer.last_step.reason


@pytest.mark.parametrize("limit", [1e-20, 1e-30])
def test_tiny_limits_hold_although_squares_vanish_in_float32(limit):
    got = stepped([[3 * limit, 4 * limit]], [1], limit)
    torch.testing.assert_close(got / limit, torch.tensor([[0.6, 0.8]]))


def test_a_complex_row_has_the_norm_of_its_magnitudes():
    got = stepped(torch.tensor([[3 + 4j, 0j], [0.25 + 0j, 0.25j]]), [1])
    norms = got.abs().square().sum(1).sqrt()
    assert norms.tolist() == pytest.approx([1.0, 0.125**0.5], abs=1e-6)
    assert got[1].tolist() == [0.25 + 0j, 0.25j]


# Sparse gradients: the named rows only.

ROW_RULES = {
    "SGD": TORCH["SGD"],
    "Adagrad": TORCH["Adagrad"],
    "SparseAdam": lambda params: torch.optim.SparseAdam(params, lr=0.1),
    **TF1,
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's Adagrad
@pytest.mark.parametrize("make", ROW_RULES.values(), ids=ROW_RULES)
def test_only_the_named_rows_of_a_table_are_clipped(make):
    bare, ours = (nn.Embedding(6, 3, sparse=True) for _ in range(2))
    ours.load_state_dict(bare.state_dict())
    optimizer, limit = make(bare.parameters()), 0.1
    wrapper = VariableClippingOptimizer(
        make(ours.named_parameters()), {"weight": [1]}, limit
    )
    ids = torch.tensor([4, 1])
    for table, opt in (bare, optimizer), (ours, wrapper):
        table(ids).sum().backward()
        opt.step()
    others = [0, 2, 3, 5]
    assert torch.equal(ours.weight[others], bare.weight[others])
    assert (bare.weight[ids].norm(dim=1) > limit).any()
    assert (ours.weight[ids].norm(dim=1) < limit * 1.00001).all()
    assert wrapper.last_step.reason.endswith("of 2 rows clipped")


def test_a_row_named_three_times_is_clipped_and_counted_once():
    parameter = Parameter(torch.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0], [1.0, 0]]))
    optimizer = clipping(parameter, [1])
    parameter.grad = rows([2, 0, 2, 2], [[0.0, 0.0]] * 4)
    optimizer.step()
    expected = [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8], [1.0, 0.0]]
    torch.testing.assert_close(parameter.detach(), torch.tensor(expected))
    reason = "every gradient was present; 2 of 2 rows clipped"
    assert optimizer.last_step == (True, reason, ())
    optimizer.step()
    reason = "every gradient was present; 0 of 2 rows clipped"
    assert optimizer.last_step == (True, reason, ())
    numbers = optimizer.step_numbers()
    assert (numbers["rows"], numbers["clipped_rows"]) == (2, 0)


@pytest.mark.parametrize("named", [[], [1], [5, 0, 5, 11, 3, 3, 5], list(range(12))])
@pytest.mark.parametrize("long", [0, 3, 9, 12])
def test_named_rows_get_the_bits_of_a_clip_of_the_whole(named, long):
    values = long_rows(0.5, 2, torch.float32, 12)
    values[torch.randperm(12, generator=torch.Generator().manual_seed(7))[:long]] *= 6.0
    whole = stepped(values, [1], 0.75)
    gradient = rows(named, [[0.0, 0.0]] * len(named), 12)
    got = stepped(values, [1], 0.75, gradient)
    assert torch.equal(got[named], whole[named])
    others = [k for k in range(12) if k not in named]
    assert torch.equal(got[others], values[others])


class Elements(TorchDispatchMode):
    """Count the elements of results, apart from views and writes into the table."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.count, self.table = 0, table

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                is_table = leaf.data_ptr() == self.table.data_ptr()
                self.count += 0 if is_table or function.is_view else leaf.numel()
        return result


@pytest.mark.parametrize("value", [0.01, 4.0])
def test_the_work_does_not_grow_with_the_table(value):
    def elements(height: int) -> int:
        table = nn.Embedding(height, 4, sparse=True)
        nn.init.constant_(table.weight, value)
        optimizer = clipping(table.weight, [-1])
        table(torch.tensor([1, 5, 1])).sum().backward()
        with Elements(table.weight) as counted:
            optimizer.step()
        return counted.count

    assert elements(100_000) == elements(10) > 0


def test_a_step_in_which_every_row_fits_writes_nothing():
    class Still(torch.optim.SGD):
        def step(self, closure=None):
            return None

    weight = Parameter(torch.full((400, 64), 0.05))
    optimizer = VariableClippingOptimizer(Still([weight], lr=0.1), {weight: [1]}, 0.41)
    weight.grad = torch.ones_like(weight)
    before = weight._version
    optimizer.step()
    assert weight._version == before
    assert "; 0 of 400" in optimizer.last_step.reason


def test_over_axis_0_the_whole_table_is_clipped_with_a_warning():
    values = torch.tensor([[3.0, 0.1], [4.0, 0.2], [0.0, 0.0], [0.0, 0.0]])
    for dims in ([0], [-2]):
        with pytest.warns(UserWarning, match="the whole variable is read"):
            got = stepped(values, dims, gradient=rows([1], [[0.0, 0.0]]))
        torch.testing.assert_close(got[:2, 0], torch.tensor([0.6, 0.8]))


def test_a_weight_may_be_used_twice_in_one_forward_pass():
    table = nn.Embedding(4, 2, sparse=True)
    nn.init.constant_(table.weight, 3.0)
    optimizer = clipping(table.weight, [1], rate=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        first, second = table(torch.tensor([0, 1])), table(torch.tensor([1, 1]))
        (first * second).sum().backward()
        optimizer.step()
    assert (table.weight[:2].norm(dim=1) < 1.000001).all()
    assert table.weight[2:].eq(3.0).all()
    assert table.weight.requires_grad


# In stacks, and with a limit for each table.


def test_rows_then_columns_as_two_wrappers():
    parameter = Parameter(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    inner = clipping(parameter, [1], 1.0)
    outer = VariableClippingOptimizer(inner, {parameter: [0]}, 0.5)
    outer.apply_gradients([(torch.zeros(2, 2), parameter)])
    once = torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    expected = once / once.norm(dim=0).clamp(min=0.5) * 0.5
    torch.testing.assert_close(parameter.detach(), expected)


def tables(dtype=torch.float32) -> tuple[list[Parameter], VariableClippingOptimizer]:
    """Return two tables with limits of their own, and their optimizer."""
    users, items = (Parameter(torch.tensor([[3.0, 4.0]], dtype=dtype)) for _ in "ab")
    sgd = torch.optim.SGD([("users", users), ("items", items)], lr=1.0)
    dims, limits = {users: [1], "items": [1]}, {users: 2.5, "items": 10.0}
    return [users, items], VariableClippingOptimizer(sgd, dims, limits)


@pytest.mark.parametrize("kind", ["plain", "copy", "masters"])
def test_each_table_has_its_own_limit(kind):
    parameters, optimizer = tables(torch.float16 if kind == "masters" else None)
    if kind == "masters":
        optimizer = MixedPrecisionOptimizerWrapper(optimizer, 1.0)
    if kind == "copy":
        parameters, optimizer = copy.deepcopy((parameters, optimizer))
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert [p.tolist() for p in parameters] == [[[1.5, 2.0]], [[3.0, 4.0]]]


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


def test_reports_before_a_step_and_without_gradients():
    parameter = Parameter(torch.tensor([[3.0, 4.0]]))
    optimizer = clipping(parameter, [1])
    assert optimizer.last_step == NO_STEP
    for pairs in ([], [(None, parameter)], [parameter], [(torch.ones(3), parameter)]):
        with pytest.raises(LockstepError):
            optimizer.apply_gradients(pairs)
    assert optimizer.last_step == NO_STEP
    optimizer.step()
    assert optimizer.last_step == NO_GRADIENTS
    assert parameter.tolist() == [[3.0, 4.0]]


def test_slots_are_those_of_the_wrapped_optimizer():
    model = TwoHeads()
    wrapper = wrapped(TF1["Momentum"], model)
    train(model, wrapper, "+")
    assert wrapper.get_slot(model.a.weight, "momentum") is not None
    assert wrapper.get_slot_names() == ["momentum"]
    assert len(wrapper.variables()) == 6
    assert wrapper.get_name() == "VariableClipping"


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


# Bad input.

W, STRANGER = Parameter(torch.full((2, 3), 7.0)), Parameter(torch.ones(4))
HALF = Parameter(torch.ones(2, 2, dtype=torch.float16))
MASTERS = MixedPrecisionOptimizerWrapper(torch.optim.SGD([("h", HALF)], 0.1), 1.0)
BAD = {
    "no optimizer": ({"opt": 3}, NotAnOptimizerError),
    "a class": ({"opt": torch.optim.SGD}, NotAnOptimizerError),
    "LBFGS": ({"opt": torch.optim.LBFGS([W])}, ValueError),
    "masters inside": (
        {"opt": MASTERS, "vars_to_clip_dims": {HALF: [1]}},
        ValueError,
    ),
    "no mapping": ({"vars_to_clip_dims": [W]}, AxesError),
    "an integer": ({"vars_to_clip_dims": {W: 1}}, AxesError),
    "None": ({"vars_to_clip_dims": {W: None}}, AxesError),
    "a string": ({"vars_to_clip_dims": {W: "1"}}, AxesError),
    "a fraction": ({"vars_to_clip_dims": {W: [1.0]}}, AxesError),
    "a truth": ({"vars_to_clip_dims": {W: [True]}}, AxesError),
    "an axis too far": ({"vars_to_clip_dims": {W: [2]}}, ValueError),
    "before the first": ({"vars_to_clip_dims": {W: [-3]}}, ValueError),
    "an axis twice": ({"vars_to_clip_dims": {W: [1, -1]}}, ValueError),
    "listed twice": ({"vars_to_clip_dims": {W: [1], "w": [0]}}, ValueError),
    "a number as key": ({"vars_to_clip_dims": {3: [1]}}, ValueError),
    "a stranger": ({"vars_to_clip_dims": {STRANGER: [0]}}, ValueError),
    "a wrong name": ({"vars_to_clip_dims": {"W1": [1]}}, ValueError),
    "no name": ({"name": ""}, ValueError),
    "another key": ({"max_norm": {STRANGER: 1.0}}, ValueError),
    "a bad norm in a dict": ({"max_norm": {W: -1.0}}, ValueError),
    **{
        f"max_norm {limit}": ({"max_norm": limit}, ValueError)
        for limit in (0, -1.0, torch.nan, torch.inf, None, "1", True)
    },
}


@pytest.mark.parametrize(("changes", "error"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_and_changes_nothing(changes, error):
    opt = torch.optim.SGD([("w", W)], 0.1)
    good = {"opt": opt, "vars_to_clip_dims": {W: [1]}, "max_norm": 1.0}
    before = dict(vars(opt))
    with pytest.raises(error):
        VariableClippingOptimizer(**(good | changes))
    assert vars(opt) == before
    assert W.eq(7.0).all()


def test_the_elements_of_a_table_are_not_printed():
    """torch cannot print float16 under a bfloat16 autocast, and a GPU would wait."""
    table = Parameter(torch.ones(70, 16, dtype=torch.float16))
    with torch.autocast("cpu", torch.bfloat16):
        optimizer = clipping(table, [1], 2.0)
        with pytest.raises(ValueError, match=r"one of shape \[70, 16\]"):
            VariableClippingOptimizer(
                torch.optim.SGD([table], lr=1.0), {table.clone(): [1]}, max_norm=2.0
            )
        table.grad = torch.zeros_like(table)
        optimizer.step()
    assert torch.equal(table, torch.full_like(table, 0.5))


def test_a_parameter_that_left_the_groups_is_not_clipped() -> None:
    weights = [torch.nn.Parameter(torch.full((2, 2), 4.0)) for _ in range(2)]
    sgd = torch.optim.SGD(weights, lr=0.0)
    optimizer = VariableClippingOptimizer(sgd, {weight: [1] for weight in weights}, 1.0)
    del optimizer.param_groups[0]["params"][1]
    for weight in weights:
        weight.grad = torch.ones(2, 2)
    optimizer.step()
    assert (weights[0].norm(dim=1) <= 1.0).all()
    assert weights[1].eq(4.0).all()
    assert optimizer.step_numbers()["rows"] == 2
