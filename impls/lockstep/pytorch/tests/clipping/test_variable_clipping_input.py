"""Bad input for row clipping in PyTorch, and what strict lets through."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lockstep.interface import NO_STEP
from lockstep.pytorch import VariableClippingOptimizer
from lockstep.pytorch.tests.clipping.models import clipping, stepped

W, STRANGER = Parameter(torch.full((2, 3), 7.0)), Parameter(torch.ones(4))
GOOD = {"opt": torch.optim.SGD([("w", W)], 0.1), "dims": {W: [1]}, "max_norm": 1.0}
DIFFERENTIABLE = torch.optim.SGD([W], 0.1, differentiable=True)
BAD = [
    ("no optimizer", {"opt": 3}, TypeError, r"a torch\.optim\.Optimizer, got int"),
    ("a class", {"opt": torch.optim.SGD}, TypeError, "the class SGD; pass an instance"),
    ("LBFGS", {"opt": torch.optim.LBFGS([W]), "dims": {}}, ValueError, "closure"),
    ("differentiable", {"opt": DIFFERENTIABLE}, ValueError, "outside of autograd; use"),
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
    assert optimizer.last_step == NO_STEP


def test_a_name_where_nothing_has_one_proposes_named_parameters() -> None:
    sgd = torch.optim.SGD([Parameter(torch.ones(2, 2))], lr=0.1)
    with pytest.raises(ValueError, match=r"make the optimizer of model\.named_param"):
        VariableClippingOptimizer(sgd, {"embedding": [1]}, 1.0)


def test_the_elements_of_a_table_are_not_printed() -> None:
    """torch cannot print float16 under a bfloat16 autocast, and a GPU would wait."""
    table = Parameter(torch.ones(70, 16, dtype=torch.float16))
    with torch.autocast("cpu", torch.bfloat16):
        sgd = torch.optim.SGD([table], lr=1.0)
        optimizer = VariableClippingOptimizer(sgd, {table: [1]}, max_norm=2.0)
        with pytest.raises(ValueError, match=r"a tensor of shape \[70, 16\]"):
            VariableClippingOptimizer(sgd, {table.clone(): [1]}, max_norm=2.0)
        table.grad = torch.zeros_like(table)
        optimizer.step()
    assert torch.equal(table, torch.full_like(table, 0.5))
