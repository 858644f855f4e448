"""The factor of clipping by the global norm, on both sides of the limit."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.reference.clipping.clip_gradients import clip_factor


@pytest.mark.parametrize("limit", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("flush", [False, True])
def test_the_factor_is_1_below_the_limit_and_their_ratio_above(
    limit: float, flush: bool
) -> None:
    below, above = np.float32(limit / 4), np.float32(limit * 4)
    assert clip_factor(np.asarray(below), limit, flush) == 1
    assert clip_factor(np.asarray(above), limit, flush) == 0.25
