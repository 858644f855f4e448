"""Strategies under which workers have no variables of their own."""

from __future__ import annotations

import tensorflow as tf

from lockstep.messages import tf as tf_host

__all__ = ["refuse_parameter_servers"]


def refuse_parameter_servers(owner: str) -> None:
    """Raise under a ``ParameterServerStrategy``: all workers would train one copy.

    Raises:
        UnsupportedError: a ValueError.
    """
    if isinstance(tf.distribute.get_strategy(), tf.distribute.ParameterServerStrategy):
        raise tf_host.PARAMETER_SERVERS.error(owner=owner)
