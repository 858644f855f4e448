"""Products of gradients with a factor in float32."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.reference.tensors.half import times

SMALLEST = float(np.finfo(np.float32).smallest_normal)


@pytest.mark.parametrize(
    ("value", "factor"),
    [(SMALLEST / 4, 8.0), (SMALLEST * 4, 1 / 16)],
    ids=["in", "out"],
)
def test_subnormals_before_and_after_count_as_zero_only_if_flushed(
    value: float, factor: float
) -> None:
    gradient = np.array([value, 1.0], np.float32)
    kept = times(gradient, np.float32(factor))
    flushed = times(gradient, np.float32(factor), flush=True)
    assert kept.tolist() == [value * factor, factor]
    assert flushed.tolist() == [0.0, factor]
