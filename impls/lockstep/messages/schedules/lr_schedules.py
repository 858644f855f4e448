"""Checks and messages of PolicyLR and PolicySchedule, which set a policy's rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.checks import number_of, require
from lockstep.messages.schedules import refusals

__all__ = [
    "RATE_SKIPPED",
    "check_policy_rate",
    "check_schedule",
    "default_rate",
]


def check_policy_rate(rate: Any) -> None:
    """Raise unless a policy's return value is a finite rate >= 0."""
    fine = 0 <= number_of(rate) < math.inf
    expected, remedy = "a finite rate >= 0 from the callable", "return a number"
    require("PolicyLR", "policy", rate, fine, expected, remedy)


def check_schedule(state: Any, kept: Sequence[str], groups: int) -> None:
    """Raise unless a saved state is a ``PolicyLR`` state with ``groups`` groups.

    ``last_epoch`` may be negative: torch's ``SequentialLR`` counts back the schedulers
    that have not begun.
    """
    mapped = isinstance(state, Mapping)
    if not mapped or set(state) != set(kept):
        got = ", ".join(map(str, state)) if mapped else repr(state)
        raise refusals.OTHER_STATE.error(kept=", ".join(kept), got=got or "nothing")
    rates = state["base_lrs"]
    if not isinstance(rates, list | tuple) or len(rates) != groups:
        raise refusals.OTHER_GROUPS.error(groups=groups, got=rates)
    counts = [name for name in kept if name != "base_lrs"]
    whole = [type(state[name]) is int for name in counts]
    if not all(whole):
        name = counts[whole.index(False)]
        raise refusals.NOT_A_STEP.error(name=name, got=state[name])
    for rate in rates:
        if not 0 <= number_of(rate) < math.inf:
            raise refusals.NO_BASE_RATE.error(got=rate)


RATE_SKIPPED = (
    "PolicyLR.step: expected optimizer.step() before it, got none, so that the first "
    "rate was never used; call scheduler.step() after optimizer.step()."
)
"""Warning about the wrong order of the two calls."""


def default_rate(default: Any, rates: Sequence[float]) -> float | None:
    """Return the rate that ``learning_rate=`` replaces; None if it replaces all rates.

    Args:
        default: the learning rate in the optimizer's defaults; it may be no rate.
        rates: the rates of its groups; without a default they must be equal.
    """
    if 0 < number_of(default) < math.inf:
        return float(default)
    if len(set(rates)) > 1:
        raise refusals.NO_DEFAULT_RATE.error(got=default)
    return None
