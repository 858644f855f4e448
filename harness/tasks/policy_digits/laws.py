"""The rates of the rules, and the largest rate in closed form."""

from __future__ import annotations

import math

import numpy as np

from harness.statistics import Floats
from harness.tasks.policy_digits.settings import Settings
from lockstep import registry

__all__ = ["peak", "rates"]


def rates(settings: Settings, steps: Floats) -> Floats:
    """Return the rates of the NumPy reference at integer steps."""
    strict = settings.mode == "strict"
    policies = registry.load("reference", strict).lr_policies
    policy = getattr(policies, settings.policy)
    values = policy(steps.astype(np.int64), **settings.arguments)
    return np.broadcast_to(np.asarray(values, np.float64), steps.shape)


def peak(settings: Settings) -> float:
    """Return the largest rate over ``settings.rate``; NaN without a closed form.

    ``poly_decay`` from step 0 to 0 in T steps with power q and a warm-up of w steps:
    (s / w) (1 - s / T)^q, s = min(w, T / (q + 1)). It is 1 if the decay begins after
    the warm-up, and for policies without a warm-up.
    """
    arguments = settings.arguments
    warm_up, begin = (
        arguments.get("warmup_steps", 0),
        arguments.get("begin_decay_at", 0),
    )
    ignores = settings.policy == "inv_poly_decay" and settings.mode == "strict"
    if settings.policy == "transformer_policy" or begin >= warm_up or ignores:
        return 1.0
    if settings.policy != "poly_decay" or begin or arguments.get("min_lr", 0.0):
        return math.nan
    length, power = arguments["decay_steps"], arguments.get("power", 1.0)
    step = min(warm_up, length / (power + 1))
    return float(step / warm_up * (1 - step / length) ** power)
