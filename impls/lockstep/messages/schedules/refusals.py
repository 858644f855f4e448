"""The errors of learning-rate policies and schedules."""

from __future__ import annotations

from lockstep.errors import (
    DtypeError,
    NoBoundariesError,
    NotAnOptimizerError,
    OutOfRangeError,
    Refusal,
    UnsupportedError,
)

BAD_STEP = Refusal(
    OutOfRangeError,
    "{policy}: global_step: expected an integer >= 0 or a tensor of integers, "
    "got {got!r}; count optimizer steps from 0.",
)
BOUNDARIES_WITHOUT_RATES = Refusal(
    OutOfRangeError,
    "piecewise_constant: boundaries: expected one for each of the {decay_rates} "
    "decay_rates, got {got}; the rate before the first boundary needs no entry.",
)
NO_BOUNDARIES = Refusal(
    NoBoundariesError,
    "piecewise_constant: boundaries: expected at least one, got none; "
    "use fixed_lr for a rate that never changes.",
)
FRACTIONAL_BOUNDARIES = Refusal(
    OutOfRangeError,
    "piecewise_constant: boundaries: expected integers, got {got!r}; "
    "round them to steps.",
)
LIMIT_UNDER_STRICT = Refusal(
    DtypeError,
    "transformer_policy: max_lr: expected no max_lr where dtype is not float32, as in "
    "the original, got {got!r}; leave strict off.",
)
# quirks.policies_integer
INTEGER_RATE = Refusal(
    DtypeError,
    "{policy}: learning_rate: expected a float, as the original, got {got!r}; "
    "write {as_float} or leave strict off.",
)
MISSING_PARAMETER = Refusal(
    OutOfRangeError,
    "{policy}: {name}: expected {claim}, got nothing; add {name}.",
)
NOT_A_POLICY = Refusal(
    DtypeError,
    "PolicyLR: policy: expected the name of a policy or a callable from the step to a "
    "rate, got {got!r}; "
    "pass functools.partial(lr_policies.poly_decay, ...), for example.",
)
NOT_SCHEDULABLE = Refusal(
    NotAnOptimizerError,
    "PolicyLR: optimizer: expected a torch.optim.Optimizer, got {got:a}; "
    "pass the optimizer first.",
)
OTHER_STATE = Refusal(
    UnsupportedError,
    "PolicyLR: state: expected {kept}, got {got}; "
    "load what state_dict() of a PolicyLR returned.",
)
OTHER_GROUPS = Refusal(
    UnsupportedError,
    "PolicyLR: state: expected base_lrs of {groups} parameter groups, got {got!r}; "
    "make the scheduler for the optimizer that was saved.",
)
NOT_A_STEP = Refusal(
    UnsupportedError,
    "PolicyLR: state: expected an int as {name}, got {got!r}; "
    "load what state_dict() of a PolicyLR returned.",
)
NO_BASE_RATE = Refusal(
    UnsupportedError,
    "PolicyLR: state: expected finite rates >= 0 as base_lrs, got {got!r}; "
    "load what state_dict() of a PolicyLR returned.",
)
NOT_A_POLICY_NAME = Refusal(
    DtypeError,
    "PolicySchedule: policy: expected the name of a policy, got {got!r}; "
    "pass 'poly_decay', for example.",
)
ARGUMENTS_WITHOUT_NAME = Refusal(
    OutOfRangeError,
    "PolicyLR: expected no further arguments beside a callable, got {got}; "
    "put them into the callable with functools.partial.",
)
GROUPS_CHANGED = Refusal(
    OutOfRangeError,
    "PolicyLR.step: expected the {then} parameter groups that the optimizer had, "
    "got {now}; make the scheduler after add_param_group.",
)
NO_DEFAULT_RATE = Refusal(
    OutOfRangeError,
    "PolicyLR: learning_rate: expected a default rate > 0 of the optimizer, "
    "because its groups differ, got {got!r}; "
    "leave learning_rate out, and it is that of the first group.",
)
NO_RATIO = Refusal(
    OutOfRangeError,
    "PolicyLR: expected a first group with a rate > 0, because the others keep their "
    "ratio to it, got {rates!r}; set the rate of the first group.",
)
