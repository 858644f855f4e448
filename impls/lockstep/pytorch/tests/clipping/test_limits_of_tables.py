"""A norm of its own for each table that is clipped."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from lockstep import pytorch, reference


def tables(dtype: torch.dtype = torch.float32) -> tuple[Parameter, Parameter]:
    row = torch.tensor([[3.0, 4.0]], dtype=dtype)
    return Parameter(row.clone()), Parameter(row.clone())


def clipping(
    users: Parameter, items: Parameter, max_norm: Any, names: Any = pytorch
) -> Any:
    sgd = torch.optim.SGD([("users", users), ("items", items)], lr=1.0)
    dims: dict[Any, Any] = {users: [1], "items": [1]}
    return names.VariableClippingOptimizer(sgd, dims, max_norm)


def zero_step(optimizer: Any, *parameters: Parameter) -> None:
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def test_each_table_has_its_own_limit() -> None:
    users, items = tables()
    optimizer = clipping(users, items, {users: 2.5, "items": 10.0})
    zero_step(optimizer, users, items)
    assert users.tolist() == [[1.5, 2.0]]
    assert items.tolist() == [[3.0, 4.0]]


def test_masters_inside_have_the_limits_of_their_weights() -> None:
    users, items = tables(torch.float16)
    inner = clipping(users, items, {users: 2.5, "items": 10.0})
    optimizer = pytorch.MixedPrecisionOptimizerWrapper(inner, 1.0)
    zero_step(optimizer, users, items)
    assert users.tolist() == [[1.5, 2.0]]
    assert items.tolist() == [[3.0, 4.0]]


def test_a_copy_keeps_the_limits() -> None:
    users, items = tables()
    optimizer = clipping(users, items, {users: 2.5, "items": 10.0})
    twins = copy.deepcopy((optimizer, users, items))
    zero_step(*twins)
    assert twins[1].tolist() == [[1.5, 2.0]]


@pytest.mark.parametrize("given", ["one", "another", "bad"])
def test_other_keys_and_bad_norms_are_one_sentence(given: str) -> None:
    users, items = tables()
    limits: dict[str, dict[Any, Any]] = {
        "one": {users: 2.5},
        "another": {users: 2.5, "itms": 1.0},
        "bad": {users: 2.5, "items": -1.0},
    }
    expected = "got -1.0" if given == "bad" else "one norm for each key"
    with pytest.raises(ValueError, match=f"max_norm: expected .*{expected}"):
        clipping(users, items, limits[given])


def test_the_reference_takes_a_mapping_too() -> None:
    row = np.float32([[3, 4]])
    users, items = (reference.Variable(name, row) for name in ("users", "items"))
    sgd = reference.GradientDescentOptimizer(1.0)
    limits = {users: 2.5, items: 10.0}
    dims = {users: [1], items: [1]}
    optimizer = reference.VariableClippingOptimizer(sgd, dims, limits)
    zeros = np.zeros_like(row)
    optimizer.apply_gradients([(zeros, users), (zeros, items)])
    assert users.value.tolist() == [[1.5, 2.0]]
    assert items.value.tolist() == [[3.0, 4.0]]
    with pytest.raises(ValueError, match="max_norm: expected one norm for each"):
        reference.VariableClippingOptimizer(sgd, dims, {users: 1.0})
