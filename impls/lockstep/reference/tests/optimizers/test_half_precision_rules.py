"""Rules on half-precision variables: those of float32, rounded once a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.interface import Array, Rows
from lockstep.reference import Variable, strict

STEPS = 12
MAKES = {
    "GradientDescent": lambda names: names.GradientDescentOptimizer(1e-3),
    "Momentum": lambda names: names.MomentumOptimizer(1e-3, 0.999),
    "Adam": lambda names: names.AdamOptimizer(1e-3),
    "AdamW": lambda names: names.AdamWOptimizer(0.01, 1e-3),
    "Adagrad": lambda names: names.AdagradOptimizer(1e-3),
    "RMSProp": lambda names: names.RMSPropOptimizer(1e-3, momentum=0.5, centered=True),
    "Ftrl": lambda names: names.FtrlOptimizer(1e-3),
    "NovoGrad": lambda names: names.NovoGrad(1e-3, weight_decay=0.01),
}
rules = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)


@pytest.fixture(params=["float16", "bfloat16"])
def dtype(request: Any) -> np.dtype[Any]:
    """NumPy's own half precision, and that of ``ml_dtypes``, where there is one."""
    if request.param == "float16":
        return np.dtype(np.float16)
    types = pytest.importorskip("ml_dtypes", reason="bfloat16 comes with TensorFlow")
    return np.dtype(types.bfloat16)


def gradients(scale: float, dtype: np.dtype[Any], sparse: bool) -> list[Any]:
    """Return the gradients of all steps, dense, or rows 1 (twice) and 4 of six."""
    random = np.random.default_rng(5)
    drawn: list[Array] = [
        (random.normal(size=(6, 3)) * scale).astype(dtype) for _ in range(STEPS)
    ]
    if not sparse:
        return drawn
    return [Rows(np.array([1, 4, 1]), values[:3], (6, 3)) for values in drawn]


@rules
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1e-4, 1.0, 300.0])
def test_a_rule_in_half_precision_is_that_of_float32_rounded_once_a_step(
    make: Any, dtype: np.dtype[Any], scale: float, sparse: bool
) -> None:
    start = np.random.default_rng(3).normal(size=(6, 3)).astype(dtype)
    half, wide = Variable("half", start), Variable("wide", start, np.float32)
    ours, same = make(reference), make(reference)
    for gradient in gradients(scale, dtype, sparse):
        ours.apply_gradients([(gradient, half)])
        same.apply_gradients([(as_float32(gradient), wide)])
    # A step rounds a weight by half an ULP at most, and decays only shrink an error;
    # one ULP a step, since a power of two in between doubles the spacing.
    precision = 2.0**-10 if dtype == np.float16 else 2.0**-7
    spacing = max(np.abs(wide.value).max(), 2.0**-14) * precision
    assert half.dtype == dtype
    assert np.abs(half.value.astype(np.float32) - wide.value).max() <= STEPS * spacing
    assert {slot.dtype for slot in ours.slots[half].values()} <= {np.dtype(np.float32)}


def as_float32(gradient: Any) -> Any:
    """Return a gradient in float32."""
    if isinstance(gradient, Rows):
        return gradient._replace(values=gradient.values.astype(np.float32))
    return gradient.astype(np.float32)


@pytest.mark.parametrize("make", [MAKES["Adam"], MAKES["AdamW"]])
def test_strict_adam_computes_in_the_dtype_of_the_variable(
    make: Any, dtype: np.dtype[Any]
) -> None:
    half = Variable("half", np.ones((6, 3), dtype))
    ours = make(strict)
    for gradient in gradients(1e-4, dtype, sparse=True):
        ours.apply_gradients([(gradient, half)])
    assert {slot.dtype for slot in ours.slots[half].values()} == {dtype}
    assert not ours.slots[half]["v"].any(), "1 - beta2, or a square, is 0"
