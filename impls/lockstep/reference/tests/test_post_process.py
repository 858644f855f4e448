"""What parity does not check of LARC, clipping, summaries and averages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.larc import larc_policy
from lockstep.reference import (
    Variable,
    clip_by_global_norm,
    clip_gradients_by_norm,
    post_process_gradients,
    strict,
)
from lockstep.reference.post_process import SummaryRecord, raw_ratio

LARC = {"larc_eta": 0.01}


def pair(gradient: Any = (60, 80), weight: Any = (3, 4)) -> Any:
    return np.float32(gradient), Variable("kernel:0", np.float32(weight))


def test_a_norm_of_nan_is_not_hidden_by_a_norm_of_zero() -> None:
    [(got, _)] = post_process_gradients(
        [pair((0, 0), (np.nan, 1))], [], 0.1, None, LARC
    )
    assert np.isnan(got).all()


def test_mode_scale_does_not_look_at_the_rate_even_if_it_is_zero() -> None:
    params = {**LARC, "larc_mode": "scale"}
    results = [
        post_process_gradients([pair()], [], rate, None, params)[0][0].tolist()
        for rate in (0.0, 0.1)
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize("mode", ["clip", "scale"])
def test_the_default_ratio_is_the_strict_one_where_no_norm_is_zero(mode: str) -> None:
    params = {**LARC, "larc_mode": mode}
    got, expected = (
        module.post_process_gradients([pair()], [], 0.25, None, params)[0][0]
        for module in (reference, strict)
    )
    assert got.tolist() == expected.tolist() != [60, 80]


def test_a_histogram_has_zero_where_a_gradient_is_not_finite() -> None:
    record = SummaryRecord()
    pairs = [pair((3, np.inf))]
    post_process_gradients(pairs, ["gradients"], 0.1, None, None, record)
    assert record.histograms["gradients/kernel_0"].tolist() == [3, 0]


@pytest.mark.parametrize(("norm", "is_on"), [(8.0, 1), (4.0, 0), (3.0, 0)])
def test_larc_counts_as_clipping_where_the_ratio_is_below_1(
    norm: float, is_on: int
) -> None:
    record = SummaryRecord()
    only_ratio, params = ["larc_summaries"], {"larc_eta": 1.0, "epsilon": 0.0}
    pairs = [pair((norm, 0), (4, 0))]
    post_process_gradients(pairs, only_ratio, 1.0, None, params, record)
    assert record.scalars["larc_clip_on/kernel_0"] == is_on
    ratio = record.scalars["larc_grad_update/kernel_0"]
    assert ratio == min(4 / norm, 1)
    assert record.scalars["larc_final_lr/kernel_0"] == ratio


def test_strict_refuses_an_absent_gradient_only_where_the_original_touched_it() -> None:
    absent = [(None, pair()[1])]
    assert strict.post_process_gradients(absent, [], 0.1, None, None) == absent
    with pytest.raises(ValueError):
        strict.post_process_gradients(absent, None, 0.1, None, None)
    with pytest.raises(ValueError):
        strict.clip_gradients_by_norm([*absent, pair()], 1.0)
    assert clip_gradients_by_norm([*absent, pair()], 1.0)[0] == absent[0]


@pytest.mark.parametrize("norm", [-2.0, -1])
def test_a_norm_that_is_a_negative_number_is_refused_unless_strict(norm: Any) -> None:
    with pytest.raises(ValueError):
        clip_by_global_norm([np.ones(2, np.float32)], 1.0, norm)
    strict.clip_by_global_norm([np.ones(2, np.float32)], 1.0, norm)
    assert np.isnan(clip_by_global_norm([np.ones(2, np.float32)], 1.0, float("nan"))[1])


@pytest.mark.parametrize("rate", [-0.1, float("nan"), float("inf")])
def test_a_number_that_is_no_rate_is_refused_unless_strict(rate: float) -> None:
    with pytest.raises(ValueError):
        post_process_gradients([pair()], [], rate, None, LARC)
    strict.post_process_gradients([pair()], [], rate, None, LARC)


def test_the_ratio_of_mode_clip_is_1_at_a_rate_of_zero_before_it_is_limited() -> None:
    half, zero = np.float32([0.5, 0])
    assert raw_ratio(larc_policy(LARC), zero, half, half, False) == 1


def test_larc_leaves_an_absent_gradient_absent() -> None:
    pairs = [(None, pair()[1]), pair()]
    (first, _), (second, _) = post_process_gradients(pairs, [], 0.1, None, LARC)
    assert first is None and second.tolist() == pytest.approx([0.3, 0.4])
