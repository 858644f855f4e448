"""NovoGrad: momentum of gradients, each divided by a running norm of its tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from lockstep.interface import Array, Rows
from lockstep.reference.clipping.clip_gradients import lane_sum
from lockstep.reference.optimizers.rules import Shared, Slots, momentum
from lockstep.reference.tensors.rows import densify

__all__ = [
    "Policy",
    "next_moment",
    "normalized",
    "policy_of",
    "square_norm",
    "update_dense",
    "update_rows",
]


class Policy(NamedTuple):
    """Hyper-parameters, in the dtype of gradient and slots.

    Attributes:
        learning_rate, beta1, epsilon, weight_decay: the arguments of these names.
        beta2, rest2: b2 and 1 - b2.
        share: 1 - b1 if gradients are averaged, else 1.
        remembers: whether the second moment is written back.
    """

    learning_rate: Array
    beta1: Array
    beta2: Array
    rest2: Array
    epsilon: Array
    weight_decay: Array
    share: Array
    remembers: bool


def policy_of(
    arguments: Mapping[str, Any], dtype: np.dtype[Any], remembers: bool
) -> Policy:
    """Cast the arguments of the constructor; 1 - beta is computed in float64 first."""
    wide = np.promote_types(dtype, np.float32)
    share = 1 - arguments["beta1"] if arguments["grad_averaging"] else 1
    return Policy(
        wide.type(arguments["learning_rate"]),
        wide.type(arguments["beta1"]),
        wide.type(arguments["beta2"]),
        wide.type(1 - arguments["beta2"]),
        wide.type(arguments["epsilon"]),
        wide.type(arguments["weight_decay"]),
        wide.type(share),
        remembers,
    )


def square_norm(gradient: Array) -> Array:
    """Return |g|^2, the sum of all squared elements: 0-d, at least float32."""
    wide = gradient.astype(np.promote_types(gradient.dtype, np.float32))
    return lane_sum(wide * wide)


def next_moment(policy: Policy, moment: Array, square: Array) -> Array:
    """v = b2 v + (1 - b2) |g|^2 if v is finite and > 0, else v = |g|^2.

    So an infinite v, which would stay infinite forever, is replaced. If the second
    moment is not stored (``remembers`` is False), v is always |g|^2.
    """
    begun = policy.remembers and 0 < moment < np.inf
    return moment * policy.beta2 + square * policy.rest2 if begun else square


def normalized(
    policy: Policy, moment: Array, variable: Array, gradient: Array
) -> Array:
    """g' = (g (1 / sqrt(v + eps)) + wd w) share."""
    factor = 1 / np.sqrt(moment + policy.epsilon)
    direction = gradient * factor
    if policy.weight_decay:
        direction = direction + policy.weight_decay * variable
    return np.asarray(direction * policy.share)


def update_dense(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Array
) -> tuple[Array, Slots]:
    """Update v, then a = b1 a + g'; w -= lr a."""
    stored = slots["second_moment"]
    moment = next_moment(policy, stored, square_norm(gradient))
    direction = normalized(policy, moment, variable, gradient)
    plain = momentum.Policy(policy.learning_rate, policy.beta1, False)
    variable, state = momentum.update_dense(plain, shared, variable, slots, direction)
    return variable, {**state, "second_moment": moment if policy.remembers else stored}


def update_rows(
    policy: Policy, shared: Shared, variable: Array, slots: Slots, gradient: Rows
) -> tuple[Array, Slots]:
    """Make the gradient dense, with duplicates summed: momentum decays on every row."""
    dense = densify(gradient, variable.shape)
    return update_dense(policy, shared, variable, slots, dense)
