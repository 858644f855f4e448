"""Which loss scales need the dense shape of a sparse gradient, and what is finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.messages.errors import LockstepError
from lockstep.reference import GradientDescentOptimizer, Rows, Variable, strict
from lockstep.reference.scaling.loss_scale import get, is_finite

SHAPELESS = Rows(np.array([0]), np.ones((1, 2), np.float32), None)


def step(module: Any, scale: Any) -> Variable:
    """Return a table after one step with rows that have no dense shape."""
    table = Variable("table", np.ones((2, 2), np.float32))
    base = GradientDescentOptimizer(0.5)
    opt = module.MixedPrecisionLossScaleOptimizer(base, scale)
    opt.apply_gradients([(SHAPELESS, table)])
    return table


@pytest.mark.parametrize("scale", [8.0, "dynamic"])
def test_by_default_no_wrapper_needs_it(scale: Any) -> None:
    assert step(reference, scale).value.tolist() == [[0.5, 0.5], [1, 1]]


def test_under_strict_only_a_wrapper_with_a_dynamic_scale_needs_it() -> None:
    assert step(strict, 8.0).value.tolist() == [[0.5, 0.5], [1, 1]]
    with pytest.raises(ValueError, match="expected a dense shape"):
        step(strict, "dynamic")


def test_nothing_is_strict_unless_asked_to_be() -> None:
    assert is_finite(SHAPELESS)
    with pytest.raises(LockstepError, match="got nan"):
        get(float("nan"))
