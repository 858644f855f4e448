"""Mutants of NovoGrad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.parity.tests.mutants.mutant import (
    Mutant,
    after,
    before,
    instead,
    one_percent_more,
)
from lockstep.interface import Array, Rows

__all__ = ["mutants"]

NOVOGRAD = ("novograd",)

# Mistakes in the rule: (policy, shared, variable, slots, g) -> (variable, slots).


def no_update(policy: Any, shared: Any, variable: Array, slots: Any, g: Any) -> Any:
    """Return the variable and its slots as they were."""
    return variable, slots


def momentum_forgotten(rule: Any) -> Any:
    """Make the rule return the momentum that it was called with."""

    def update(policy: Any, shared: Any, variable: Array, slots: Any, g: Any) -> Any:
        moved, state = rule(policy, shared, variable, slots, g)
        return moved, {**state, "momentum": slots["momentum"]}

    return update


def one_percent_faster(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments of the rule with a learning rate 1 % too large."""
    rate = policy.learning_rate
    return policy._replace(learning_rate=rate * rate.dtype.type(1.01)), *rest


def first_row_wins(gradient: Rows, shape: tuple[int, ...]) -> Array:
    """Return a dense gradient in which the first row of each index wins."""
    dense = np.zeros(shape, gradient.values.dtype)
    dense[gradient.indices[::-1]] = gradient.values[::-1]
    return dense


# Mistakes in the norm.


def root_of_norm(square: Array) -> Array:
    """Return the norm in place of its square."""
    return np.asarray(np.sqrt(square))


def mean_of_squares(gradient: Array) -> Array:
    """Return the mean of the squares in place of their sum."""
    return np.asarray(np.mean(gradient * gradient))


def mixed_with_zero(policy: Any, moment: Array, square: Array) -> Array:
    """Return b2 v + (1 - b2) |g|^2 in the first step, too, where v is 0."""
    return np.asarray(moment * policy.beta2 + square * policy.rest2)


# Mistakes in (policy, moment, variable, gradient) -> g'.


def epsilon_outside(policy: Any, moment: Array, variable: Array, g: Array) -> Array:
    """Divide by ``sqrt(moment) + epsilon`` instead of ``sqrt(moment + epsilon)``."""
    direction = g * (1 / (np.sqrt(moment) + policy.epsilon))
    return np.asarray((direction + policy.weight_decay * variable) * policy.share)


def no_decay(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with a weight decay of 0."""
    return policy._replace(weight_decay=policy.weight_decay * 0), *rest


def decay_times_rate(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with the weight decay times the learning rate."""
    decay = policy.weight_decay * policy.learning_rate
    return policy._replace(weight_decay=decay), *rest


def no_averaging(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments with a share of 1 in place of 1 - beta1."""
    return policy._replace(share=policy.share.dtype.type(1)), *rest


def decay_not_averaged(right: Any) -> Any:
    """Make the weight decay be added after the product with the share."""

    def normalized(policy: Any, moment: Array, variable: Array, g: Array) -> Array:
        bare = policy._replace(weight_decay=policy.weight_decay * 0)
        decay = policy.weight_decay * variable
        return np.asarray(right(bare, moment, variable, g) + decay)

    return normalized


def decay_before_norm(policy: Any, moment: Array, variable: Array, g: Array) -> Array:
    """Add the weight decay before the division by the norm."""
    factor = 1 / np.sqrt(moment + policy.epsilon)
    return np.asarray((g + policy.weight_decay * variable) * factor * policy.share)


def always_averaged(policy: Any) -> Any:
    """Return the policy with the share 1 - beta1 for any ``grad_averaging``."""
    return policy._replace(share=policy.rest2.dtype.type(1) - policy.beta1)


# Mistakes in what the original rejects.


def zeros_for_absent(pairs: Any) -> Any:
    """Return the pairs with zeros in place of absent gradients."""
    return [(np.zeros_like(v.value) if g is None else g, v) for g, v in pairs]


def _of_the_rule() -> Iterator[Mutant]:
    update = "optimizers.rules.novograd.update_dense"
    yield Mutant(update, "no update", instead(no_update), NOVOGRAD)
    yield Mutant(update, "rate 1 % too large", before(one_percent_faster), NOVOGRAD)
    yield Mutant(update, "momentum not kept", momentum_forgotten, NOVOGRAD)
    yield Mutant(
        "optimizers.rules.novograd.densify",
        "one row wins",
        instead(first_row_wins),
        NOVOGRAD,
    )
    norm, moment = (
        "optimizers.rules.novograd.square_norm",
        "optimizers.rules.novograd.next_moment",
    )
    yield Mutant(norm, "1 % too large", after(one_percent_more), NOVOGRAD)
    yield Mutant(norm, "not squared", after(root_of_norm), NOVOGRAD)
    yield Mutant(norm, "a mean, not a sum", instead(mean_of_squares), NOVOGRAD)
    yield Mutant(moment, "averaged from 0 on", instead(mixed_with_zero), NOVOGRAD)


def mutants() -> Sequence[Mutant]:
    """Return the mutants of NovoGrad."""
    from lockstep import reference

    default = instead(reference.NovoGrad)
    direction = "optimizers.rules.novograd.normalized"
    return (
        *_of_the_rule(),
        Mutant(direction, "epsilon outside", instead(epsilon_outside), NOVOGRAD),
        Mutant(direction, "decay forgotten", before(no_decay), NOVOGRAD),
        Mutant(direction, "decay times rate", before(decay_times_rate), NOVOGRAD),
        Mutant(direction, "averaging forgotten", before(no_averaging), NOVOGRAD),
        Mutant(direction, "decay not averaged", decay_not_averaged, NOVOGRAD),
        Mutant(direction, "decay normalized", instead(decay_before_norm), NOVOGRAD),
        Mutant(
            "optimizers.rules.novograd.policy_of",
            "averaged",
            after(always_averaged),
            NOVOGRAD,
        ),
        Mutant("strict.NovoGrad", "not strict", default, NOVOGRAD),
        Mutant(
            "optimizers.novograd.check_strictly",
            "zeros for absent",
            before(lambda pairs: (zeros_for_absent(pairs),)),
            NOVOGRAD,
        ),
    )
