"""FTRL in NumPy where its formula would divide zero by zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.reference import Rows, Variable, strict

ZEROS = np.zeros((1, 2), np.float32)


@pytest.mark.parametrize("module", [reference, strict], ids=["default", "strict"])
@pytest.mark.parametrize("gradient", [ZEROS, Rows(np.array([0]), ZEROS, (1, 2))])
def test_a_weight_that_was_never_pulled_is_zero_and_not_nan(
    module: Any, gradient: Any
) -> None:
    w = Variable("w", np.ones((1, 2), np.float32))
    opt = module.FtrlOptimizer(0.1, initial_accumulator_value=0.0)
    opt.apply_gradients([(gradient, w)])
    assert w.value.tolist() == [[0, 0]]


def test_a_power_other_than_the_root_is_taken_as_it_is() -> None:
    w = Variable("w", np.ones(1, np.float32))
    opt = reference.FtrlOptimizer(1.0, -1.5, initial_accumulator_value=0.0)
    opt.apply_gradients([(np.float32([2]), w)])
    # G - n^1.5 w = 2 - 8, and w = 6 / n^1.5.
    assert w.value.tolist() == [0.75]
