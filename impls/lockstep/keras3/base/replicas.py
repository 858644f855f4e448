"""Steps on the replicas of a strategy: a ``merge_call``, then one decision for all.

A wrapper's decisions depend on the gradients, so in graphs it needs conditions. Inside
a condition a replica cannot call ``merge_call``.
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
    "first_copy",
    "once",
    "replica_count",
    "scope_of",
    "strategy_of",
    "together",
    "update_each",
]


def replica_count() -> int:
    """Return the number of replicas of the current strategy; 1 without one."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def together(
    owner: str,
    build: Callable[[list[Gradient]], None],
    step: Callable[[list[Gradient]], None],
    gradients: Sequence[Gradient],
    variables: Sequence[Any],
) -> None:
    """Take a step once for all replicas, with the sums of their gradients.

    A sum is absent if it is absent on every replica, and sparse if it is dense on none.
    ``step`` runs outside of the strategy: it reads the first copy of a mirrored
    variable, and assigns to every copy.

    Args:
        owner: the name in error messages.
        build: called with the sums, in the strategy; creates the state.
        step: called with the sums; decides and updates.
        gradients: the gradients of the calling replica.
        variables: their variables, in the same order.

    Raises:
        NoGradientsError: a ValueError; every gradient is absent.
        UnsupportedError: a ValueError; replicas that cannot call ``merge_call``.
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
    """Call ``function`` once for all replicas, in the current strategy."""
    met(owner, [], lambda *shares: function())


def met(owner: str, own: list[Gradient], function: Callable[..., None]) -> None:
    """Call ``function`` once, with the gradients of each replica."""
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
    """Return the values of all replicas; a single object is each replica's value."""
    if isinstance(value, tf.distribute.DistributedValues):
        return tuple(strategy.experimental_local_results(value))
    return (value,) * int(strategy.num_replicas_in_sync)


def add_up(shares: Sequence[Gradient], variable: Any) -> Gradient:
    """Return the sum of the gradients of one variable; None if all are absent."""
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
    """Return the scope in which an optimizer with this strategy creates its state."""
    is_default = strategy is distribute_lib._get_default_strategy()
    return contextlib.nullcontext() if is_default else strategy.scope()


def strategy_of(variables: Sequence[Any]) -> tf.distribute.Strategy:
    """Return the strategy of mirrored variables, or the current one."""
    for variable in map(value_of, variables):
        if isinstance(variable, tf.distribute.DistributedValues):
            return variable.distribute_strategy
    return tf.distribute.get_strategy()


def first_copy(variable: tf.Variable) -> tf.Variable:
    """Return the first copy of a mirrored variable; return another one unchanged."""
    if isinstance(variable, tf.distribute.DistributedValues):
        return variable.distribute_strategy.experimental_local_results(variable)[0]
    return variable


def update_each(
    variable: tf.Variable, function: Callable[..., Any], *arguments: Any
) -> None:
    """Call ``function(copy, *arguments)`` for a variable, or each of its copies."""
    if isinstance(variable, tf.distribute.DistributedValues):
        extended = variable.distribute_strategy.extended
        extended.update(variable, function, args=arguments, group=False)
    else:
        function(variable, *arguments)
