"""Sums of micro-batches whose gradients are sparse."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.interface import Rows
from lockstep.reference.step.micro_batches import add_share


@pytest.mark.parametrize("shapes", [(None, (4, 2)), ((4, 2), None)])
def test_the_sum_has_the_dense_shape_of_either(shapes: tuple) -> None:
    first, second = (
        Rows(np.array([1]), np.ones((1, 2), np.float32), shape) for shape in shapes
    )
    assert add_share(first, second, 2).dense_shape == (4, 2)
