"""Steps in TensorFlow."""

from __future__ import annotations

import tensorflow as tf

from harness.timing import Step


def traced(step: Step) -> Step:
    """Return ``step`` as a ``tf.function`` that autograph leaves as it is."""
    return tf.function(step, autograph=False)
