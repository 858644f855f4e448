"""Mutants of the update rules of TensorFlow 1's optimizers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.parity.tests.mutants.mutant import Mutant, before, instead
from lockstep.interface import Array, Rows

__all__ = ["mutants"]

# Mistakes in a rule: (policy, shared, variable, slots, gradient) -> (variable, slots).


def no_update(policy: Any, shared: Any, variable: Array, slots: Any, g: Any) -> Any:
    """Return the variable and its slots as they were."""
    return variable, slots


def rate_too_large(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments of a rule with a learning rate 1 % too large."""
    rate = policy.learning_rate
    return policy._replace(learning_rate=rate * rate.dtype.type(1.01)), *rest


def decay_times_rate(policy: Any, *rest: Any) -> tuple[Any, ...]:
    """Return the arguments of a rule with the decay times the learning rate."""
    decay = policy.weight_decay * policy.learning_rate
    return policy._replace(weight_decay=decay), *rest


def all_rows_decay(rule: Any) -> Any:
    """Make a sparse rule decay the rows that the gradient does not name, too."""

    def update(policy: Any, shared: Any, variable: Array, slots: Any, g: Any) -> Any:
        rest = np.setdiff1d(np.arange(len(variable)), g.indices)
        decayed = variable.copy()
        decayed[rest] -= policy.weight_decay * variable[rest]
        return rule(policy, shared, decayed, slots, g)

    return update


def sign_flipped(*arguments: Any) -> tuple[Any, ...]:
    """Return the arguments of a rule with the sign of the gradient flipped."""
    *rest, g = arguments
    return *rest, (g._replace(values=-g.values) if isinstance(g, Rows) else -g)


def slots_forgotten(rule: Any) -> Any:
    """Make a rule return the slots that it was called with."""

    def update(policy: Any, shared: Any, variable: Array, slots: Any, g: Any) -> Any:
        return rule(policy, shared, variable, slots, g)[0], slots

    return update


def last_duplicate_only(gradient: Rows) -> Rows:
    """Return the last of the rows that share an index, instead of their sum."""
    last = {index: k for k, index in enumerate(gradient.indices.tolist())}
    indices = np.array(sorted(last), dtype=np.int64)
    chosen = [last[index] for index in indices.tolist()]
    return Rows(indices, gradient.values[chosen], gradient.dense_shape)


RULES = ("gradient_descent", "momentum", "adam", "adamw", "adagrad", "rmsprop", "ftrl")
BASE = ("base_optimizers",)


def mutants() -> Iterator[Mutant]:
    """Yield the mutants of the rules: each mistake in one rule at a time."""
    for rule in RULES:
        for function in ("update_dense", "update_rows"):
            target = f"optimizers.rules.{rule}.{function}"
            yield Mutant(target, "no update", instead(no_update), BASE)
            yield Mutant(target, "rate 1 % too large", before(rate_too_large), BASE)
            yield Mutant(target, "sign flipped", before(sign_flipped), BASE)
            if rule != "gradient_descent":
                yield Mutant(target, "slots not kept", slots_forgotten, BASE)
        if rule not in ("gradient_descent", "adamw"):
            target = f"optimizers.rules.{rule}.sum_duplicates"
            yield Mutant(target, "last one wins", instead(last_duplicate_only), BASE)
    for function in ("update_dense", "update_rows"):
        target = f"optimizers.rules.adamw.{function}"
        yield Mutant(target, "decay times rate", before(decay_times_rate), BASE)
    yield Mutant(
        "optimizers.rules.adamw.update_rows", "all rows decay", all_rows_decay, BASE
    )
