"""Logarithms of the largest gradient, at the end of the range."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.reference import AutomaticLossScaler
from lockstep.reference.scaling.logmax import log_amax

SMALLEST = np.finfo(np.float32).smallest_normal


def test_a_subnormal_counts_as_zero_and_the_smallest_normal_number_does_not() -> None:
    policy = AutomaticLossScaler("LogMax").policy
    assert log_amax(policy, False, float(SMALLEST)) == pytest.approx(-126)
    below = float(np.nextafter(SMALLEST, np.float32(0)))
    assert log_amax(policy, False, below) == log_amax(policy, False, 0.0) == -np.inf
