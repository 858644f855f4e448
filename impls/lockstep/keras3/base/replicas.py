"""A step among the replicas of a strategy: they meet first, and one decides for all.

What a wrapper does with a step depends on its gradients, so it is decided by conditions
inside of graphs, and a replica cannot call ``merge_call`` from inside of one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from lockstep.keras3.base.gradients import Gradient, densify, name_of, value_of
from lockstep.messages import keras3 as words
from lockstep.messages.base.pairs import require_gradients
from lockstep.tf.shared.tensors.replica_copies import apart

__all__ = [
    "once",
    "replica_count",
    "scope_of",
    "strategy_of",
    "together",
    "update_each",
]


def replica_count() -> int:
    """Return how many replicas there are: 1, or those of the strategy at work."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def together(
    owner: str,
    build: Callable[[list[Gradient]], None],
    step: Callable[[list[Gradient]], None],
    gradients: Sequence[Gradient],
    variables: Sequence[Any],
) -> None:
    """Take a step once for all replicas, with the sums of their gradients.

    A sum is absent if it is absent on every replica, and sparse if it is nowhere dense.
    While ``step`` runs there is no strategy: what it reads of a mirrored variable is
    the first copy, and what it assigns goes to every copy.

    Args:
        owner: the name in errors.
        build: takes the sums and makes the state, under the strategy at work.
        step: takes the sums, decides and updates.
        gradients: those of the replica that calls.
        variables: theirs, in the same order.

    Raises:
        NoGradientsError: a ValueError; every gradient is absent.
        UnsupportedError: a ValueError; replicas that cannot meet.
    """

    def meet(*shares: list[Gradient]) -> None:
        columns = zip(zip(*shares, strict=True), variables, strict=True)
        sums = [add_up(column, variable) for column, variable in columns]
        pairs = zip(sums, variables, strict=True)
        require_gradients(pairs, owner, map(name_of, variables))
        build(sums)
        with apart():
            step(sums)

    met(owner, list(gradients), meet)


def once(owner: str, function: Callable[[], None]) -> None:
    """Call ``function`` once for all replicas, under the strategy at work."""
    met(owner, [], lambda *shares: function())


def met(owner: str, own: list[Gradient], function: Callable[..., None]) -> None:
    """Call ``function`` once, with what each replica has of its own."""
    context = tf.distribute.get_replica_context()
    if context is None or not tf.distribute.has_strategy():
        function(own)
        return
    strategy, count = tf.distribute.get_strategy(), replica_count()
    compiled = tf.__internal__.distribute.strategy_supports_no_merge_call()
    if compiled and count == 1:
        function(own)
        return
    if compiled or len(strategy.extended.worker_devices) != count:
        raise words.REPLICAS_APART.error(owner=owner, count=count)

    def meet(strategy: tf.distribute.Strategy, given: list[Any]) -> None:
        columns = [local_results(strategy, value) for value in given]
        shares = [list(share) for share in zip(*columns, strict=True)]
        function(*shares or [[]])

    context.merge_call(meet, args=(own,))


def local_results(strategy: tf.distribute.Strategy, value: Any) -> tuple[Any, ...]:
    """Return what each replica has; one object stands for itself on all of them."""
    if isinstance(value, tf.distribute.DistributedValues):
        return tuple(strategy.experimental_local_results(value))
    return (value,) * int(strategy.num_replicas_in_sync)


def add_up(shares: Sequence[Gradient], variable: Any) -> Gradient:
    """Return the sum of the gradients of one variable, None where there is none."""
    present = [share for share in shares if share is not None]
    if len(present) <= 1:
        return present[0] if present else None
    if not all(isinstance(share, tf.IndexedSlices) for share in present):
        return tf.add_n([densify(share, variable) for share in present])
    return tf.IndexedSlices(
        tf.concat([share.values for share in present], 0),
        tf.concat([share.indices for share in present], 0),
        present[0].dense_shape,
    )


def scope_of(
    strategy: tf.distribute.Strategy,
) -> contextlib.AbstractContextManager[Any]:
    """Return the scope in which an optimizer that has this strategy makes its state."""
    is_default = strategy is distribute_lib._get_default_strategy()
    return contextlib.nullcontext() if is_default else strategy.scope()


def strategy_of(variables: Sequence[Any]) -> tf.distribute.Strategy:
    """Return the strategy of mirrored variables, or the one at work."""
    for variable in map(value_of, variables):
        if isinstance(variable, tf.distribute.DistributedValues):
            return variable.distribute_strategy
    return tf.distribute.get_strategy()


def update_each(
    variable: tf.Variable, function: Callable[..., Any], *arguments: Any
) -> None:
    """Call ``function(copy, *arguments)`` for a variable, or each of its copies."""
    if isinstance(variable, tf.distribute.DistributedValues):
        extended = variable.distribute_strategy.extended
        extended.update(variable, function, args=arguments, group=False)
    else:
        function(variable, *arguments)
