"""Row clipping of tables with sparse gradients: the named rows only."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lockstep.pytorch import VariableClippingOptimizer
from lockstep.pytorch.tests.clipping.models import clipping, rows, stepped
from lockstep.pytorch.tests.subjects import TF1, TORCH

both = pytest.mark.parametrize("strictly", [False, True], ids=["default", "strict"])
ROW_RULES = {
    "SGD": TORCH["SGD"],
    "Adagrad": TORCH["Adagrad"],
    "SparseAdam": lambda params: torch.optim.SparseAdam(params, lr=0.1),
    **TF1,
}


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
    empty = torch.sparse_coo_tensor(
        torch.zeros(1, 0).long(), torch.zeros(0, 2), (4, 2), check_invariants=True
    )
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
        nn.init.constant_(table.weight, 4.0)
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


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's, once a process
def test_strict_takes_the_test_for_axis_0_literally():
    values = torch.tensor([[3.0, 0.1], [4.0, 0.2], [0.0, 0.0], [0.0, 0.0]])
    gradient = rows([1], [[0.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = stepped(values, [-2], gradient=gradient, strict=True)
    torch.testing.assert_close(got[:2, 0], torch.tensor([3.0, 1.0]))
