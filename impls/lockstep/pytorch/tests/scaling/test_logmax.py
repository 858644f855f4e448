"""The logarithm that LogMax takes of the largest gradient, at its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lockstep.messages.scaling.automatic_scaler import LogMaxPolicy
from lockstep.pytorch.scaling.logmax import log_amax, start_logmax, step_logmax

SMALLEST_NORMAL = 2.0**-126


@pytest.mark.parametrize(
    ("amax", "expected"),
    [
        (0.0, -math.inf),
        (float(np.nextafter(np.float32(SMALLEST_NORMAL), 0)), -math.inf),
        (SMALLEST_NORMAL, -126.0),
        (1.0, 0.0),
        (2.0**100, 100.0),
    ],
)
def test_only_zero_and_subnormals_have_the_logarithm_of_zero(amax, expected) -> None:
    # The quotient of two float32 logarithms is off by half an ULP each.
    got = log_amax(LogMaxPolicy(), has_nan=False, amax=amax)
    assert got == pytest.approx(expected, rel=2**-23)


def test_a_step_without_a_gradient_changes_no_statistic() -> None:
    policy = LogMaxPolicy()
    state = step_logmax(policy, start_logmax(policy), has_nan=False, amax=4.0)
    after = step_logmax(policy, state, has_nan=False, amax=0.0)
    assert after == state._replace(iteration=state.iteration + 1)
