"""The words of the schedules that set a policy's rate: PolicyLR and PolicySchedule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.messages.errors import (
    DtypeError,
    NotAnOptimizerError,
    OutOfRangeError,
    UnsupportedError,
    sentence,
)
from lockstep.messages.ranges import number_of, require

__all__ = [
    "RATE_SKIPPED",
    "arguments_without_name",
    "check_policy_rate",
    "check_schedule",
    "default_rate",
    "groups_changed",
    "no_ratio",
    "not_a_policy",
    "not_a_policy_name",
    "not_schedulable",
]


def not_a_policy(got: object) -> DtypeError:
    """Build the error for an object that is no policy."""
    expected = "the name of a policy or a callable from the step to a rate"
    remedy = "pass functools.partial(lr_policies.poly_decay, ...), for example"
    return DtypeError(sentence("PolicyLR: policy", expected, repr(got), remedy))


def not_schedulable(got: object) -> NotAnOptimizerError:
    """Build the error for what has no groups to write a rate into."""
    expected, remedy = "a torch.optim.Optimizer", "pass the optimizer first"
    return NotAnOptimizerError(
        sentence("PolicyLR: optimizer", expected, f"a {type(got).__name__}", remedy)
    )


def check_policy_rate(rate: Any) -> None:
    """Raise unless what a callable returned can be a rate."""
    fine = 0 <= number_of(rate) < math.inf
    expected, remedy = "a finite rate >= 0 from the callable", "return a number"
    require("PolicyLR", "policy", rate, fine, expected, remedy)


def check_schedule(state: Any, kept: Sequence[str], groups: int) -> None:
    """Raise unless a saved state is one of ``PolicyLR``, for as many groups."""
    mapped = isinstance(state, Mapping)
    if not mapped or set(state) != set(kept):
        got = ", ".join(map(str, state)) if mapped else repr(state)
        remedy = "load what state_dict() of a PolicyLR returned"
        text = sentence("PolicyLR: state", ", ".join(kept), got or "nothing", remedy)
        raise UnsupportedError(text)
    rates = state["base_lrs"]
    if not isinstance(rates, list | tuple) or len(rates) != groups:
        remedy = "make the scheduler for the optimizer that was saved"
        expected = f"base_lrs of {groups} parameter groups"
        raise UnsupportedError(
            sentence("PolicyLR: state", expected, repr(rates), remedy)
        )


def not_a_policy_name(got: object) -> DtypeError:
    """Build the error for a schedule of something else: it could not be saved."""
    remedy = "pass 'poly_decay', for example"
    expected = "the name of a policy"
    return DtypeError(sentence("PolicySchedule: policy", expected, repr(got), remedy))


def arguments_without_name(arguments: Mapping[str, Any]) -> OutOfRangeError:
    """Build the error for arguments beside a callable, which has its own."""
    got, expected = ", ".join(arguments), "no further arguments beside a callable"
    remedy = "put them into the callable with functools.partial"
    return OutOfRangeError(sentence("PolicyLR", expected, got, remedy))


RATE_SKIPPED = (
    "PolicyLR.step: expected optimizer.step() before it, got none, so that the first "
    "rate was never used; call scheduler.step() after optimizer.step()."
)
"""A warning: the order of the two calls is wrong."""


def groups_changed(now: int, then: int) -> OutOfRangeError:
    """Build the error for parameter groups added after the scheduler was made."""
    expected = f"the {then} parameter groups that the optimizer had"
    remedy = "make the scheduler after add_param_group"
    return OutOfRangeError(sentence("PolicyLR.step", expected, str(now), remedy))


def default_rate(default: Any, rates: Sequence[float]) -> float | None:
    """Return the rate that ``learning_rate=`` takes the place of; None for any.

    Args:
        default: the rate that the optimizer was made with, if it is one.
        rates: those of its groups, which may all be alike instead.
    """
    if 0 < number_of(default) < math.inf:
        return float(default)
    if len(set(rates)) > 1:
        expected = "a default rate > 0 of the optimizer, for its groups differ"
        remedy = "leave learning_rate out, and it is that of the first group"
        text = sentence("PolicyLR: learning_rate", expected, repr(default), remedy)
        raise OutOfRangeError(text)
    return None


def no_ratio(rates: Sequence[float]) -> OutOfRangeError:
    """Build the error for groups whose rates have no ratio to that of the first."""
    expected = "a first group with a rate > 0, for the others keep their ratio to it"
    remedy = "set the rate of the first group"
    return OutOfRangeError(sentence("PolicyLR", expected, repr(rates), remedy))
