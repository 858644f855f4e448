"""Rows are clipped in place as the rule has it, and only those that are too long."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lockstep.messages.clipping.variable_clipping import MARGINS, Axes
from lockstep.pytorch.clipping import clip_rows as rule
from lockstep.pytorch.clipping.row_writing import NamedRows, clip_in_place
from lockstep.pytorch.tests.clipping.models import clipping

LIMIT = 0.75
NAMED = {
    "all": None,
    "some, with duplicates": torch.tensor([5, 0, 5, 11, 3, 3, 5]),
    "none": torch.zeros(0, dtype=torch.long),
}
LONG = {"none": 0, "few": 3, "most": 9, "all": 12}


def table(name: str, long: int) -> Tensor:
    """Return [12, 4, 5] values of which ``long`` rows are too long for LIMIT."""
    drawn = torch.randn(12, 4, 5, generator=torch.Generator().manual_seed(long))
    lengths = torch.full((12, 1, 1), 0.5)
    lengths[torch.randperm(12, generator=torch.Generator().manual_seed(7))[:long]] = 3.0
    values = drawn / drawn.norm(dim=(1, 2), keepdim=True) * lengths
    return values.to(getattr(torch, name))


def awkward(name: str) -> Tensor:
    """Return a table with rows of NaN, inf, zeros and subnormals beside others."""
    values = table(name, 3)
    values[0, 1, 2], values[3, 0, 0], values[4, 0, 0] = torch.nan, torch.inf, -torch.inf
    values[5], values[6], values[7, 0] = 0.0, -0.0, 1e-41
    return values


def expected(values: Tensor, indices: Tensor | None, axes: tuple[int, ...]) -> Tensor:
    """Return what the rule makes of them, all rows computed and written."""
    if indices is None:
        return rule.clip_rows(values, axes, LIMIT)[0]
    clipped, _ = rule.clip_rows(values.index_select(0, indices), axes, LIMIT)
    return values.index_copy(0, indices, clipped)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether the values are the same, NaN and the sign of zero included."""
    signs = torch.equal(one.signbit(), other.signbit())
    return signs and torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


@pytest.mark.parametrize("axes", [(), (0,), (1,), (2,), (1, 2), (0, 2)], ids=str)
@pytest.mark.parametrize("name", MARGINS)
def test_in_place_is_what_the_rule_gives_for_all_rows(name, axes) -> None:
    tables = [table(name, long) for long in LONG.values()] + [awkward(name)]
    for values, indices in product(tables, NAMED.values()):
        if indices is not None and 0 in axes:
            continue
        strided = values.transpose(1, 2).contiguous().transpose(1, 2)
        for start in values, strided:
            right, got = expected(start, indices, axes), start.clone()
            clip_in_place(NamedRows(got, indices, Axes.of(axes, LIMIT)))
            assert same(got, right)


@pytest.mark.parametrize("name", MARGINS)
def test_blocks_of_a_table_have_the_norms_of_the_table(name, monkeypatch) -> None:
    values = table(name, 9)
    whole = rule.norms_in_float64(values, (1, 2))
    monkeypatch.setattr(rule, "BLOCK", 50)
    assert torch.equal(rule.norms_in_float64(values, (1, 2)), whole)


class Elements(TorchDispatchMode):
    """Notes how many elements each result has, views aside."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        """Call the operation and count."""
        result = function(*args, **(kwargs or {}))
        if not function.is_view:
            self.counts += [leaf.numel() for leaf in tensors(result)]
        return result


def tensors(result: object) -> list[Tensor]:
    """Return the tensors of a result."""
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def long_table(long: int) -> Parameter:
    """Return 4,000 rows of 64, of which the first ones are too long."""
    values = torch.full((4000, 64), 0.05)
    values[:long] = 0.5
    return Parameter(values)


def test_of_a_table_only_long_rows_are_copied_and_no_float64_of_all() -> None:
    weight = long_table(10)
    optimizer = clipping(weight, [1])
    elements = Elements()
    with elements:
        optimizer.clip({weight: None})
    # The result of a write in place is the table.
    others = [count for count in elements.counts if count < weight.numel()]
    assert len(elements.counts) - len(others) == 1
    assert max(others) <= rule.BLOCK
    assert sum(others) < 1.5 * weight.numel()
    assert (weight.norm(dim=1)[:10] <= 1.0).all()


@pytest.mark.parametrize(
    "indices", [None, torch.arange(100, 300)], ids=["all", "named"]
)
def test_a_step_in_which_every_row_fits_writes_nothing(indices) -> None:
    weight = long_table(10)
    optimizer = clipping(weight, [1])
    optimizer.clip({weight: None})
    before = weight._version
    (clipped,) = optimizer.clip({weight: indices})
    assert weight._version == before
    assert not clipped.too_large.any()
