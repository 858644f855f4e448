"""Sums of gradients over the replicas of a strategy, before a wrapper's step.

A v1 optimizer sums gradients in ``apply_gradients``, in a ``merge_call``, which is not
possible inside a condition. So a wrapper calls it first: it creates all state and sums
the gradients. Then every replica takes the same step on its own copy of the variables.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from lockstep.messages import tf as words
from lockstep.tf.base.pairs import Gradient, Pairs, name_of
from lockstep.tf.shared.tensors.replica_copies import own_copy
from lockstep.tf.shared.workers.accumulate import densify

__all__ = [
    "apply_summed",
    "awaits_sums",
    "make_together",
    "refuse_cross_replica",
    "require_mirrored",
    "summed_gradients",
    "sums_known",
    "sums_over_replicas",
    "whole_step",
]

Operation = tf.Operation | None

ABSENT, SPARSE, DENSE = range(3)
SKIP_SUM = "skip_gradients_aggregation"
"""TensorFlow's argument of ``apply_gradients`` for gradients that are summed."""

_thread = threading.local()


def refuse_cross_replica(owner: str) -> None:
    """Raise if gradients are applied outside of ``strategy.run``."""
    if tf.distribute.in_cross_replica_context():
        raise words.CROSS_REPLICA.error(owner=owner)


def sums_known() -> bool:
    """Whether the gradients in this thread are already summed over the replicas."""
    return getattr(_thread, "summed", False)


def awaits_sums() -> bool:
    """Whether the caller is a replica whose gradients are not summed yet."""
    return tf.distribute.has_strategy() and not sums_known()


@contextlib.contextmanager
def summed_gradients() -> Iterator[None]:
    """Mark the gradients that are applied in the ``with`` block as summed."""
    _thread.summed = True
    try:
        yield
    finally:
        _thread.summed = False


def make_together(make: Callable[[], Any]) -> None:
    """Call ``make``, which creates variables, once for all replicas."""
    if not awaits_sums() or tf.distribute.in_cross_replica_context():
        make()
        return

    def merged(strategy: tf.distribute.Strategy) -> None:
        make()

    tf.distribute.get_replica_context().merge_call(merged)


def sums_over_replicas(pairs: Pairs) -> Pairs:
    """Return the pairs with each gradient summed over the replicas.

    A gradient is absent only if it is absent on all replicas. It stays sparse unless
    it is dense on a replica.
    """
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return pairs
    kinds = tuple(kind_of(gradient) for gradient, _ in pairs)
    largest = context.merge_call(largest_kinds, args=(kinds,))
    held = [
        (position, as_kind(gradient, variable, kind))
        for position, ((gradient, variable), kind) in enumerate(
            zip(pairs, largest, strict=True)
        )
        if kind != ABSENT
    ]
    sums: dict[int, Any] = {}
    # One collective per dtype and kind, because a strategy concatenates dense tensors.
    for alike in groups(held):
        summed = context.all_reduce(tf.distribute.ReduceOp.SUM, [g for _, g in alike])
        sums.update(zip([position for position, _ in alike], summed, strict=True))
    return [(sums.get(position), v) for position, (_, v) in enumerate(pairs)]


def kind_of(gradient: Gradient) -> int:
    """Return whether a gradient is absent, sparse or dense."""
    if gradient is None:
        return ABSENT
    return SPARSE if isinstance(gradient, tf.IndexedSlices) else DENSE


def largest_kinds(strategy: Any, kinds: Sequence[Any]) -> tuple[int, ...]:
    """Return a kind per gradient to which the gradients of all replicas convert."""
    return tuple(max(strategy.experimental_local_results(kind)) for kind in kinds)


def as_kind(gradient: Gradient, variable: tf.Variable, kind: int) -> Any:
    """Convert a gradient to slices or to a dense tensor; an absent one adds nothing."""
    copy, dtype = own_copy(variable), variable.dtype.base_dtype
    if kind == DENSE:
        return tf.zeros_like(copy) if gradient is None else densify(gradient, copy)
    if gradient is None:
        values = tf.zeros([0, *variable.shape[1:]], dtype)
        return tf.IndexedSlices(values, tf.zeros([0], tf.int64), None)
    return tf.IndexedSlices(gradient.values, tf.cast(gradient.indices, tf.int64), None)


def groups(held: Iterable[tuple[int, Any]]) -> list[list[tuple[int, Any]]]:
    """Group the gradients by kind and dtype, each with its position."""
    gradients: dict[Any, list[tuple[int, Any]]] = {}
    for position, gradient in held:
        key = type(gradient), gradient.dtype
        gradients.setdefault(key, []).append((position, gradient))
    return list(gradients.values())


def require_mirrored(owner: str, variables: Iterable[Any]) -> None:
    """Raise for a variable that is not mirrored, if there are several replicas."""
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return
    for variable in variables:
        if not isinstance(variable, tf.distribute.DistributedValues):
            raise words.NOT_MIRRORED.error(owner=owner, name=name_of(variable))


def apply_summed(
    optimizer: Any, pairs: Pairs, global_step: Any, name: str | None
) -> Operation:
    """Apply summed gradients; tell the optimizer not to sum them again."""
    apply = optimizer.apply_gradients
    arguments = inspect.signature(apply).parameters
    takes_any = any(a.kind is a.VAR_KEYWORD for a in arguments.values())
    if not takes_any and SKIP_SUM not in arguments:
        raise words.SUMS_AGAIN.error(
            optimizer=type(optimizer).__name__, argument=SKIP_SUM
        )
    known = {SKIP_SUM: True}
    done: Operation = apply(pairs, own_copy(global_step), name, **known)
    return done


def whole_step(done: Operation) -> Operation:
    """Return the operation of a step on all replicas, given one replica's; graph only.

    It replaces the replicas' operations in the collection of training operations.
    """
    if tf.executing_eagerly():
        return done

    def group(strategy: Any, part: Any) -> Operation:
        whole: Operation = strategy.group(part)
        parts = strategy.experimental_local_results(part)
        train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
        train_ops[:] = [*(op for op in train_ops if op not in parts), whole]
        return whole

    context = tf.distribute.get_replica_context()
    together: Operation = context.merge_call(group, args=(done,))
    return together
