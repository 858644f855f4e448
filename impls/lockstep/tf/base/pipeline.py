"""Which stages a stack of wrappers has, or a training tensor."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.messages.base import pipeline

__all__ = ["pipeline_of"]


def pipeline_of(optimizer: Any) -> tuple[str, ...]:
    """Return the stages that are active in a stack of wrappers, in their order.

    Args:
        optimizer: an optimizer or a wrapper, or what ``optimize_loss`` returned, the
            tensor of a graph included.

    Example:
        >>> from lockstep.tf import MixedPrecisionOptimizerWrapper
        >>> sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        >>> pipeline_of(MixedPrecisionOptimizerWrapper(sgd, 8.0))
        ('unscale', 'finite check', 'update')
    """
    if tf.is_tensor(optimizer):
        optimizer = getattr(optimizer, "training_step", optimizer)
    return pipeline.pipeline_of(optimizer)
