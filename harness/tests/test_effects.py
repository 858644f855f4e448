"""Effects of pairs and statistics over the seeds, on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import HarnessError
from harness.statistics import (
    median,
    paired_effects,
)

INF = np.inf


def test_an_effect_is_the_log_of_the_ratio_or_the_difference() -> None:
    a, b = [2.0, 3.0, 0.0], [1.0, 6.0, 5.0]
    expected = [np.log(2), np.log(0.5), -INF]
    assert paired_effects(a, b, "log ratio") == pytest.approx(expected)
    assert paired_effects(a, b, "difference").tolist() == [1, -3, -5]


@pytest.mark.parametrize("kind", ["log ratio", "difference"])
def test_one_diverged_run_is_infinitely_worse_and_two_are_equal(kind: str) -> None:
    effects = paired_effects([INF, 1, INF, 0], [1, INF, INF, 0], kind)
    assert effects.tolist() == [INF, -INF, 0, 0]


def test_a_negative_metric_has_no_ratio() -> None:
    with pytest.raises(HarnessError, match="at least 0, got -2; set effect = "):
        paired_effects([1.0], [-2.0], "log ratio")


def test_a_median_of_infinities_of_both_signs_is_no_nan() -> None:
    values = np.array([[-INF, -INF, INF, INF], [-INF, 1, 2, INF], [1, INF, INF, INF]])
    assert median(values).tolist() == [0, 1.5, INF]
    assert np.isnan(median(np.array([[np.nan, 1.0]])))
