"""A step neither writes to arrays of the user nor keeps them: each result is new."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest

from lockstep import reference
from lockstep.interface import Array, Rows
from lockstep.reference import Variable
from lockstep.reference.optimizers import Optimizer

Make = Callable[[], Optimizer]

RULES: dict[str, Make] = {
    "GradientDescent": lambda: reference.GradientDescentOptimizer(0.1),
    "Momentum": lambda: reference.MomentumOptimizer(0.1, 0.5),
    "Adam": lambda: reference.AdamOptimizer(0.1),
    "AdamW": lambda: reference.AdamWOptimizer(0.01, 0.1),
    "Adagrad": lambda: reference.AdagradOptimizer(0.1),
    "RMSProp": lambda: reference.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
    "Ftrl": lambda: reference.FtrlOptimizer(0.1),
    "NovoGrad": lambda: reference.NovoGrad(0.1),
}
WRAPPERS: dict[str, Make] = {
    "multitask": lambda: reference.MultitaskOptimizerWrapper(RULES["Momentum"]()),
    "scaling": lambda: reference.MixedPrecisionLossScaleOptimizer(
        RULES["Momentum"](), "dynamic"
    ),
    "masters": lambda: reference.MixedPrecisionOptimizerWrapper(RULES["Momentum"]()),
}
MAKES = RULES | WRAPPERS


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "rows"])
@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_arrays_from_before_a_step_stay_as_they_were(
    make: Make, sparse: bool, dtype: type
) -> None:
    w = Variable("w", [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype)
    values: Array = np.asarray([[0.5, 1.0], [2.0, 0.25]], dtype)
    indices, dense = np.asarray([2, 0]), np.asarray(w.value / 4)
    gradient = Rows(indices, values, w.shape) if sparse else dense
    optimizer = make()
    held = [indices, values, dense]
    for _ in range(3):
        held += [w.value, *slots_of(optimizer, w)]
        before = deepcopy(held)
        optimizer.apply_gradients([(gradient, w)])
        for array, earlier in zip(held, before, strict=True):
            np.testing.assert_array_equal(array, earlier)
        for new in (w.value, *slots_of(optimizer, w)):
            assert not any(np.shares_memory(new, given) for given in held)


def slots_of(optimizer: Optimizer, variable: Variable) -> list[Array]:
    """Return the slots of a variable that exist already."""
    slots = [optimizer.get_slot(variable, n) for n in optimizer.get_slot_names()]
    return [slot for slot in slots if slot is not None]
