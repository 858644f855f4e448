"""Numbers in their ranges."""

import math
import re

import numpy as np
import pytest

from lockstep.messages import multitask
from lockstep.messages.clipping import clip_by_global_norm as clipping
from lockstep.messages.errors import LockstepError, OutOfRangeError
from lockstep.messages.ranges import LARGEST_LIMIT, LARGEST_SCALE, number_of
from lockstep.messages.scaling import loss_scale, loss_scaling
from lockstep.messages.step import reduction, summaries

LIMITS = {
    "clip_by_global_norm": lambda v: clipping.check_limit(clipping.CLIP, "limit", v),
    "clip_gradients_by_global_norm": multitask.check_clip_norm,
    "clip_norm of the wrappers": lambda v: loss_scaling.check_clip_norm(v, False),
}


@pytest.mark.parametrize("check", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("limit", [1e39, 1e300, 1.1 * LARGEST_LIMIT, 1e-40, 1e-300])
def test_a_limit_that_float32_cannot_divide_by_is_refused_everywhere(check, limit):
    with pytest.raises(OutOfRangeError, match="which float32 can divide by, got"):
        check(limit)


@pytest.mark.parametrize("check", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    "limit", [True, np.True_, "1", None, np.ones(2), 10**400, 0, -1, math.nan, math.inf]
)
def test_a_limit_that_is_no_positive_number_is_a_sentence_everywhere(check, limit):
    if limit is None and check is LIMITS["clip_norm of the wrappers"]:
        return
    with pytest.raises(OutOfRangeError, match="expected a finite number > 0, got"):
        check(limit)


@pytest.mark.parametrize("check", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("limit", [1, 0.5, np.float32(2), LARGEST_LIMIT])
def test_a_limit_that_float32_can_divide_by_is_taken_everywhere(check, limit):
    check(limit)


@pytest.mark.parametrize(
    ("value", "number"),
    [(3, 3.0), (np.float16(2), 2.0), (np.array(4), 4.0), (math.inf, math.inf)],
)
def test_one_number_of_any_kind_is_a_float(value, number):
    assert number_of(value) == number


@pytest.mark.parametrize("value", [True, np.True_, "3", b"3", None, [1], np.ones(1)])
def test_what_is_no_number_is_nan_and_so_fails_every_range(value):
    assert math.isnan(number_of(value))


@pytest.mark.parametrize("value", [1e39, math.nan, math.inf, True, 0.5, "4", None])
def test_a_fixed_scale_that_float32_cannot_hold_is_refused(value):
    with pytest.raises(OutOfRangeError, match="FixedLossScale: loss_scale_value"):
        loss_scale.fixed_value(value)


@pytest.mark.parametrize(("value", "scale"), [(True, 1.0), (math.inf, math.inf)])
def test_strict_takes_a_fixed_scale_as_the_original_did(value, scale):
    assert loss_scale.fixed_value(value, arguments_unchecked=True) == scale


def test_a_fixed_scale_may_be_a_number_of_numpy():
    assert loss_scale.fixed_value(np.float32(8)) == 8


@pytest.mark.parametrize("value", [1e300, 1e39, 1e-50, 0, -1, math.nan, True, 10**400])
def test_a_dynamic_scale_begins_at_one_that_float32_can_hold(value):
    with pytest.raises(OutOfRangeError, match="DynamicLossScale: initial_loss_scale"):
        loss_scale.dynamic_policy(value, 2000, 2.0)


@pytest.mark.parametrize("value", [1.5, "3", True, np.True_, b"3", None, math.inf])
def test_a_period_is_a_whole_number(value):
    with pytest.raises(OutOfRangeError, match="DynamicLossScale: increment_period"):
        loss_scale.dynamic_policy(8.0, value, 2.0)


@pytest.mark.parametrize("value", ["2", b"2", True, np.True_, None, 1])
def test_a_multiplier_is_a_number_above_one(value):
    with pytest.raises(OutOfRangeError, match="DynamicLossScale: multiplier"):
        loss_scale.dynamic_policy(8.0, 2000, value)


@pytest.mark.parametrize("number", [np.int64, np.float32, float, int])
def test_a_dynamic_scale_takes_numbers_of_numpy(number):
    policy = loss_scale.dynamic_policy(number(8), number(3), number(2))
    assert (policy.increment_period, policy.multiplier) == (3, 2.0)
    assert type(policy.increment_period) is int


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, 1e39, "x"])
def test_a_saved_scale_that_would_never_train_is_refused(value):
    with pytest.raises(OutOfRangeError, match="finite in float32"):
        loss_scale.check_saved_scale("Wrapper", value)


def test_the_largest_float32_is_a_scale():
    loss_scale.check_saved_scale("Wrapper", LARGEST_SCALE)
    assert np.float32(LARGEST_SCALE) == np.finfo(np.float32).max


@pytest.mark.parametrize("flag", ["x", 1.5, [True]])
def test_a_flag_for_ranks_that_is_no_bool_is_refused(flag):
    with pytest.raises(OutOfRangeError, match="on_horovod: expected True"):
        reduction.check_arguments(flag, None)


def test_an_engine_that_is_none_is_refused_before_gradients_are_looked_at():
    with pytest.raises(OutOfRangeError, match="an engine with size, any, all_reduce"):
        reduction.check_arguments(True, 3)


@pytest.mark.parametrize(
    ("writer", "step"),
    [(None, None), (3, None), ("runs", None), (dict, None)],
)
def test_a_writer_that_cannot_be_told_scalars_is_refused(writer, step):
    with pytest.raises(LockstepError, match=re.escape("what has add_scalar")):
        summaries.check_writer(writer, step, "Recorder")
