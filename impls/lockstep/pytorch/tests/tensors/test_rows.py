"""Rows of a sparse gradient: the sum of duplicates is the same to the bit, always."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lockstep.interface import Rows
from lockstep.pytorch.tensors.rows import sum_duplicates
from lockstep.reference.tensors.rows import sum_duplicates as summed_in_turn


def sparse(indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    shape = (5, *values.shape[1:])
    found = torch.sparse_coo_tensor(indices[None], values, shape, check_invariants=True)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", [(0, 2), (3,), (16, 2), (17, 2), (400, 3)])
def test_duplicate_rows_are_added_in_the_order_of_their_occurrence(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(len(shape) + shape[0])
    indices = torch.randint(0, 5, shape[:1], generator=random)
    values = torch.randn(shape, generator=random).to(dtype)
    found = sum_duplicates(sparse(indices, values))
    wanted = summed_in_turn(Rows(indices.numpy(), values.numpy(), (5, *shape[1:])))
    assert np.array_equal(found.indices.numpy(), wanted.indices)
    assert np.array_equal(found.values.numpy(), wanted.values)


def test_complex_duplicates_are_added_also_if_they_are_lazy_conjugates() -> None:
    values = torch.tensor([[1 + 2j], [3 - 1j], [0.5j]])
    found = sum_duplicates(sparse(torch.tensor([4, 0, 4]), values.conj()))
    assert found.indices.tolist() == [0, 4]
    assert torch.equal(found.values, torch.tensor([[3 + 1j], [1 - 2.5j]]))


def test_rows_that_are_summed_already_stay_as_they_are() -> None:
    gradient = sparse(torch.tensor([1, 1]), torch.ones(2, 2)).coalesce()
    assert sum_duplicates(gradient).values.data_ptr() == gradient.values().data_ptr()
