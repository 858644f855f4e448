"""Code for ``tf.distribute``: the current replica, its copies, and how to exit it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from lockstep.messages import tf as words

__all__ = [
    "apart",
    "is_first_replica",
    "own_copy",
    "refuse_parameter_servers",
    "replica_number",
]


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Exit the current strategy, if there is one, within a ``with`` block.

    Inside a strategy, TensorFlow's optimizers sum the gradients over all replicas, and
    Keras' optimizers need a replica context. There is no public way to exit.
    """
    if not tf.distribute.has_strategy():
        yield
        return
    distribute_lib._push_per_thread_mode(distribute_lib._get_default_replica_mode())
    try:
        yield
    finally:
        distribute_lib._pop_per_thread_mode()


def replica_number() -> int:
    """Return the number of the calling replica; 0 outside of a strategy."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return 0
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def is_first_replica() -> bool:
    """Whether the caller is the first replica, which prints and warns for all."""
    return replica_number() == 0


def own_copy(variable: Any) -> Any:
    """Return the calling replica's copy of a variable."""
    context = tf.distribute.get_replica_context()
    if context is None or not isinstance(variable, tf.distribute.DistributedValues):
        return variable
    # The copies of one process, whose replicas have consecutive numbers.
    copies = context.strategy.experimental_local_results(variable)
    return copies[replica_number() % len(copies)]


def refuse_parameter_servers(owner: str) -> None:
    """Raise under a ``ParameterServerStrategy``: all workers would train one copy.

    Raises:
        UnsupportedError: a ValueError.
    """
    if isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy):
        raise words.PARAMETER_SERVERS.error(owner=owner)
