"""The session hook, the step count and the slots of a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lockstep.messages import tf as tf_host
from lockstep.messages.workers import agn as words
from lockstep.tf.base.hooks import is_reference
from lockstep.tf.base.wrapper import builds_graph
from lockstep.tf.workers.center import AGNCustomGetter

__all__ = [
    "BeginRound",
    "copy_of",
    "local_collection",
    "make_local_step",
]

v1 = tf.compat.v1


class BeginRound(v1.train.SessionRunHook):
    """Runs an operation, which ``make`` builds, in each new session."""

    def __init__(self, make: Callable[[], tf.Operation | None]) -> None:
        self.make = make

    def begin(self) -> None:
        """Build the operation before the graph is finalized."""
        self.start = self.make()

    def after_create_session(self, session: v1.Session, coord: Any) -> None:
        """Run it."""
        session.run(self.start)


def make_local_step(getter: AGNCustomGetter | None) -> tf.Variable:
    """Create the count of a worker's steps, on the CPU of the worker of ``getter``.

    Without a getter it is on the current device. If that is a parameter server, all
    workers count together.
    """
    with contextlib.ExitStack() as devices:
        if getter is not None:
            devices.enter_context(v1.device(getter.worker_device))
            devices.enter_context(v1.device("/cpu:0"))
        if not builds_graph():
            devices.enter_context(tf.init_scope())
            return tf.Variable(0, False, dtype=tf.int32, name="local_step")
        try:
            return v1.get_variable(
                "local_step",
                initializer=tf.constant(0, tf.int32),
                trainable=False,
                collections=[v1.GraphKeys.LOCAL_VARIABLES],
            )
        except ValueError as error:
            raise tf_host.SECOND_INSTANCE.error(owner=words.WRAPPER) from error


def local_collection() -> contextlib.AbstractContextManager[Any]:
    """Add the variables that a graph creates in this context to ``LOCAL_VARIABLES``."""
    if not builds_graph():
        return contextlib.nullcontext()

    def make(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        kwargs["collections"] = [v1.GraphKeys.LOCAL_VARIABLES]
        return next_creator(**kwargs)

    return tf.variable_creator_scope(make)


def copy_of(variable: tf.Variable) -> tf.Tensor:
    """Return a copy of a variable's value; reading a reference variable copies none."""
    value = variable.read_value()
    return tf.raw_ops.DeepCopy(x=value) if is_reference(variable) else value
