"""The factor of clipping by the global norm, on both sides of the limit."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.reference import clip_by_global_norm
from lockstep.reference.arrays import lane_sum
from lockstep.reference.clipping import clip_factor


@pytest.mark.parametrize("limit", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("flush", [False, True])
def test_the_factor_is_1_below_the_limit_and_their_ratio_above(
    limit: float, flush: bool
) -> None:
    below, above = np.float32(limit / 4), np.float32(limit * 4)
    assert clip_factor(np.asarray(below), limit, flush) == 1
    assert clip_factor(np.asarray(above), limit, flush) == 0.25


@pytest.mark.parametrize("size", [8193, 10_000, 16_384])
def test_more_than_8192_elements_are_added_up_in_float64(size: int) -> None:
    # Behind 2^24, the next float32 number is 2 further: a 1 would be lost.
    values = np.ones(size, np.float32)
    values[0] = 2.0**24
    assert lane_sum(values) == np.float32(2.0**24 + size - 1)


@pytest.mark.parametrize("size", [4096, 4608, 8192])
def test_up_to_8192_elements_are_added_up_in_eight_lanes(size: int) -> None:
    # The first lane stays at 2^24, where a 1 is lost, so its other elements count as 0.
    values = np.ones(size, np.float32)
    values[0] = 2.0**24
    assert lane_sum(values) == np.float32(2.0**24 + 7 * size / 8)


def test_a_norm_whose_square_is_subnormal_is_not_lost() -> None:
    _, norm = clip_by_global_norm([np.float32([2.0**-70])], 1.0)
    assert norm == 2.0**-70
