"""Steps in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from harness.timing import Step


def one_thread() -> None:
    """Use one thread; TensorFlow takes this only before its first operation."""
    if tf.config.threading.get_intra_op_parallelism_threads() != 1:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def traced(step: Step) -> Step:
    """Return ``step`` as a ``tf.function`` that autograph leaves as it is."""
    return tf.function(step, autograph=False)
