"""Loss scaling in the reference where no recorded case speaks: its options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep import reference
from lockstep.errors import LockstepError
from lockstep.reference import (
    DynamicLossScale,
    FixedLossScale,
    MixedPrecisionLossScaleOptimizer,
    Rows,
    Variable,
)

NAN = float("nan")


def walk(pattern: str, **options: Any) -> list[float]:
    """Return the scale after each step: ``.`` is finite, ``x`` an overflow."""
    scale = DynamicLossScale(options.pop("start", 64.0), **options)
    found = []
    for letter in pattern:
        scale.move(letter == ".")
        found.append(float(scale()))
    return found


def test_after_hysteresis_overflows_every_other_one_lowers_until_it_grows() -> None:
    found = walk("x.xx..xx", increment_period=2, hysteresis=2)
    assert found == [64, 64, 32, 16, 16, 32, 32, 16]


def test_an_overflow_within_the_hysteresis_still_restarts_the_period() -> None:
    assert walk(".x..", increment_period=2, hysteresis=9) == [64, 64, 64, 128]


def test_the_share_of_overflows_reaches_the_tolerance_or_nothing_is_lowered() -> None:
    quarter = walk("...x....x.x", tolerance=0.25)
    assert quarter == [64] * 3 + [32] * 5 + [32, 32, 16]
    assert walk(".x" + "." * 9 + "xx", tolerance=0.5)[1:] == [32] * 12


def test_growth_starts_the_share_anew() -> None:
    found = walk("....x..xx", increment_period=4, tolerance=0.4)
    assert found == [64, 64, 64, 128, 64, 64, 64, 64, 32]


def test_factors_of_their_own_replace_the_multiplier() -> None:
    options = {"increment_period": 1, "growth_factor": 1.5, "backoff_factor": 0.75}
    assert walk(".x", **options) == [96, 72]
    third = np.float32(64) / np.float32(3)
    assert walk("x", multiplier=3.0) == [third]
    assert walk("x", backoff_factor=1e-3, floor=0.5) == [0.5]


def test_300_zero_gradients_keep_the_scale_finite() -> None:
    scale = DynamicLossScale(increment_period=1, growth_factor=3.0)
    for _ in range(300):
        scale.update([np.zeros(2, np.float32)])
    assert np.isfinite(scale())


def scaled(scale: Any, **options: Any) -> MixedPrecisionLossScaleOptimizer:
    """Wrap Momentum in a loss scale."""
    base = reference.MomentumOptimizer(0.1, 0.9)
    return MixedPrecisionLossScaleOptimizer(base, scale, **options)


def clipped_run(scale: float) -> tuple[bytes, float | None, float | None]:
    """Return the weights after three steps that clip, and the last norm and factor."""
    draw = np.random.default_rng(1)
    w = Variable("w", np.ones((3, 2)), np.float32)
    opt = scaled(scale, clip_norm=0.7)
    for _ in range(3):
        dense = draw.normal(size=(3, 2)).astype(np.float32)
        sparse = Rows(np.array([1, 1]), dense[:2], (3, 2))
        for gradient in (dense, sparse):
            pairs = opt.compute_gradients(lambda g=gradient: [g], [w])
            opt.apply_gradients(pairs)
    report = opt.last_step
    return w.value.tobytes(), report.norm, report.clip_factor


def test_clipping_does_not_see_the_scale() -> None:
    assert clipped_run(1.0) == clipped_run(2.0**16)


def test_a_report_has_the_norm_and_what_clipping_multiplied_by() -> None:
    w = Variable("w", [0.0, 0.0], np.float32)
    opt = scaled(4.0, clip_norm=2.5)
    opt.apply_gradients([(np.array([3, 4], np.float32), w)])
    report = opt.last_step
    assert (report.norm, report.clip_factor) == (5, 0.5)
    assert report.reason == "finite; loss scale 4; norm 5 -> 2.5"
    np.testing.assert_array_equal(w.value, np.float32([-0.15, -0.2]))
    opt.apply_gradients([(np.array([NAN, 4], np.float32), w)])
    assert (opt.last_step.norm, opt.last_step.clip_factor) == (None, None)


def test_a_norm_that_overflows_is_an_overflow() -> None:
    w = Variable("w", [1.0, 1.0], np.float32)
    opt = scaled("dynamic", clip_norm=1.0)
    opt.apply_gradients([(np.full(2, 1e30, np.float32), w)])
    report = opt.last_step
    assert not report.applied and report.nonfinite == () and report.norm == np.inf
    assert "the norm of all gradients" in report.reason
    assert w.value.tolist() == [1, 1] and opt.loss_scale == 2.0**14


class Failing(reference.GradientDescentOptimizer):
    def apply_gradients(self, *arguments: Any) -> None:
        raise OSError("no such device")


def test_a_step_that_fails_leaves_the_scale_alone() -> None:
    w = Variable("w", [1.0], np.float32)
    scale = DynamicLossScale(2.0, increment_period=1)
    opt = MixedPrecisionLossScaleOptimizer(Failing(0.1), scale)
    with pytest.raises(OSError):
        opt.apply_gradients([(np.ones(1, np.float32), w)])
    assert opt.loss_scale == 2


TABLE: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [64, 32, 32, 16, 8, 8, 8, 8, 16, 8]),
    ({"hysteresis": 2}, [64, 64, 64, 32, 16, 16, 16, 16, 32, 32]),
    ({"tolerance": 0.6}, [64, 64, 64, 64, 32, 32, 32, 32, 64, 32]),
]


@pytest.mark.parametrize(("options", "expected"), TABLE, ids=str)
def test_the_table_of_the_page_is_true(options: Any, expected: list[int]) -> None:
    assert walk(".x.xx....x", increment_period=4, **options) == expected


def test_an_applied_step_reports_variables_without_gradients() -> None:
    a, b = Variable("a", np.ones(2)), Variable("b", np.ones(2))
    sgd = reference.GradientDescentOptimizer(0.5)
    opt = MixedPrecisionLossScaleOptimizer(sgd, FixedLossScale(8.0))
    opt.apply_gradients([(np.ones(2), a), (None, b)])
    assert opt.last_step.applied and opt.last_step.skipped == ("b",)
    assert opt.last_step.reason == "finite, 1 absent; loss scale 8"


REFUSED: list[dict[str, Any]] = [
    {"growth_factor": 1.0},
    {"growth_factor": NAN},
    {"backoff_factor": 1.0},
    {"backoff_factor": 0},
    {"hysteresis": 0},
    {"hysteresis": 2.0},
    {"tolerance": 1.0},
    {"tolerance": -0.1},
    {"hysteresis": 2, "tolerance": 0.1},
    {"increment_period": NAN},
    {"floor": NAN},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_an_option_out_of_range_is_refused(options: Any) -> None:
    with pytest.raises(LockstepError):
        DynamicLossScale(8.0, **options)
