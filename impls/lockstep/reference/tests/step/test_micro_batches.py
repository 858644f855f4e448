"""Sums of micro-batches whose gradients are sparse."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.interface import Rows
from lockstep.reference.optimize_loss import add_share


@pytest.mark.parametrize("shapes", [(None, (4, 2)), ((4, 2), None)])
def test_the_sum_has_the_dense_shape_of_either(shapes: tuple) -> None:
    first, second = (
        Rows(np.array([1]), np.ones((1, 2), np.float32), shape) for shape in shapes
    )
    assert add_share(first, second, 2).dense_shape == (4, 2)


@pytest.mark.parametrize("sparse_first", [True, False])
def test_the_sum_of_rows_and_a_dense_gradient_is_dense(sparse_first: bool) -> None:
    rows = Rows(np.array([1, 1]), np.ones((2, 2), np.float32), (3, 2))
    dense = np.ones((3, 2), np.float32)
    total = add_share(None, rows if sparse_first else dense, 2)
    total = add_share(total, dense if sparse_first else rows, 2)
    assert total.tolist() == [[0.5, 0.5], [1.5, 1.5], [0.5, 0.5]]
