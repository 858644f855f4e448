"""Mutants of the learning-rate policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.parity.tests.mutants.mutant import (
    Change,
    Mutant,
    after,
    constant,
    instead,
    one_percent_more,
)
from lockstep.interface import Array
from lockstep.policies import POLICIES

__all__ = ["mutants"]


def one_percent_higher(rate: Any) -> Any:
    """Return a learning rate times 1.01."""
    return rate * 1.01 if isinstance(rate, float | int) else one_percent_more(rate)


def one_step_late(policy: Any) -> Any:
    """Make a policy return the rate of the step before."""
    return lambda step, **args: policy(max(step - 1, 0), **args)


def one_step_early(policy: Any) -> Any:
    """Make a policy return the rate of the step after."""
    return lambda step, **args: policy(step + 1, **args)


def forgotten(name: str) -> Change:
    """Leave an argument of a policy out."""

    def change(policy: Any) -> Any:
        def without(step: Any, **args: Any) -> Any:
            return policy(step, **{k: v for k, v in args.items() if k != name})

        return without

    return change


def no_warm_up(step: Array, learning_rate: float, warmup_steps: float) -> Array:
    """Return the full learning rate at every step."""
    return np.full(np.shape(step), np.float32(learning_rate))


def goes_on(step: Array, decay_steps: float, begin_decay_at: int) -> Array:
    """Return the progress of a decay without an upper bound of 1."""
    return np.asarray((step - begin_decay_at) / decay_steps, np.float32)


def unchecked_boundaries(boundaries: Any, rates: Any, per_epoch: Any) -> list[Any]:
    """Return the boundaries in steps without checking them; [0] for none."""
    return [b if per_epoch is None else per_epoch * b for b in boundaries] or [0]


POLICY_CASES = ("lr_policies",)
OPTIONAL = {
    "piecewise_constant": ("steps_per_epoch",),
    "exp_decay": ("begin_decay_at", "min_lr"),
    "poly_decay": ("power", "begin_decay_at", "min_lr", "warmup_steps"),
    "cosine_decay": ("begin_decay_at", "min_lr", "warmup_steps"),
    "inv_poly_decay": ("power",),
    "transformer_policy": ("max_lr", "coefficient", "dtype"),
}


def mutants() -> Iterator[Mutant]:
    """Yield the mutants of the policies: each mistake in one policy at a time."""
    from lockstep import reference

    for policy in POLICIES:
        target = f"strict.lr_policies.{policy}"
        anything = constant(np.float32(0.1))
        yield Mutant(target, "1 % too large", after(one_percent_higher), POLICY_CASES)
        yield Mutant(target, "constant and unchecked", anything, POLICY_CASES)
        if policy != "fixed_lr":
            yield Mutant(target, "a step late", one_step_late, POLICY_CASES)
            yield Mutant(target, "a step early", one_step_early, POLICY_CASES)
        for name in OPTIONAL.get(policy, ()):
            yield Mutant(target, f"{name} forgotten", forgotten(name), POLICY_CASES)
        if policy in ("cosine_decay", "inv_poly_decay", "transformer_policy"):
            default = instead(getattr(reference.lr_policies, policy))
            yield Mutant(target, "not strict", default, POLICY_CASES)
    yield from (
        Mutant(
            "lockstep.policies.warmed_up", "none", instead(no_warm_up), POLICY_CASES
        ),
        Mutant(
            "lockstep.policies.decay_progress",
            "endless",
            instead(goes_on),
            POLICY_CASES,
        ),
        Mutant(
            "lockstep.policies.step_boundaries",
            "unchecked",
            instead(unchecked_boundaries),
            POLICY_CASES,
        ),
    )
