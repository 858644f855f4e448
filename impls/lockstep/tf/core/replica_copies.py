"""Which copy of a variable, and whose warnings, are those of the calling replica."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["is_first_replica", "own_copy", "replica_number"]


def replica_number() -> int:
    """Return the number of the calling replica; 0 outside of a strategy."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 0
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def is_first_replica() -> bool:
    """Whether the caller is the replica that prints and warns for all."""
    return replica_number() == 0


def own_copy(variable: Any) -> Any:
    """Return the copy of a variable that belongs to the replica of the caller."""
    context = tf.distribute.get_replica_context()
    if context is None or not isinstance(variable, tf.distribute.DistributedValues):
        return variable
    return context.strategy.experimental_local_results(variable)[replica_number()]
