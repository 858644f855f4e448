"""Which copy of a variable, and whose warnings, are those of the calling replica."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["is_first_replica", "own_copy"]


def own_copy(variable: Any) -> Any:
    """Return the copy of a variable that belongs to the replica of the caller."""
    if not isinstance(variable, tf.distribute.DistributedValues):
        return variable
    context = tf.distribute.get_replica_context()
    if context is None:
        return variable
    copies = context.strategy.experimental_local_results(variable)
    if len(copies) == 1:
        return copies[0]
    return copies[int(tf.get_static_value(context.replica_id_in_sync_group))]


def is_first_replica() -> bool:
    """Whether the caller is the replica that prints and warns for all."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return True
    return int(tf.get_static_value(context.replica_id_in_sync_group)) == 0
