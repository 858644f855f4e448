"""The mean of gradients over replicas, by ``tf.distribute`` or by another engine."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from lockstep.messages import tf as tf_host
from lockstep.messages.step import reduction as words
from lockstep.messages.step import refusals
from lockstep.messages.step.reduction import Reduction

__all__ = ["ReplicaReduction", "mean_gradients"]

Gradient = tf.Tensor | tf.IndexedSlices | None


class ReplicaReduction:
    """Means over the replicas of the current strategy, for calls inside its ``run``.

    The replicas of one process agree on absent gradients while they are traced. Several
    workers have to agree by themselves.
    """

    def __init__(self) -> None:
        if tf.distribute.in_cross_replica_context():
            raise tf_host.CROSS_REPLICA_CALL.error(function=words.REDUCE)
        self.context = tf.distribute.get_replica_context()

    @property
    def size(self) -> int:
        """Return the number of replicas."""
        return int(self.context.num_replicas_in_sync)

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return, for each flag, whether it is set on any replica."""
        return [self.context.merge_call(set_anywhere, args=(flag,)) for flag in flags]

    def all_reduce(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return each tensor's mean; divide before the sum, which could overflow.

        One collective per dtype, because a strategy concatenates tensors.
        """
        means: dict[int, tf.Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [k for k, tensor in enumerate(tensors) if tensor.dtype == dtype]
            shares = [tensors[k] / tf.cast(self.size, dtype) for k in alike]
            summed = self.context.all_reduce(tf.distribute.ReduceOp.SUM, shares)
            means.update(zip(alike, summed, strict=True))
        return [means[k] for k in range(len(tensors))]


def set_anywhere(strategy: tf.distribute.Strategy, flag: bool) -> bool:
    """Return whether a flag is set on any replica."""
    return any(strategy.experimental_local_results(flag))


def mean_gradients(
    gradients: Sequence[Gradient],
    variables: Sequence[tf.Variable],
    reduction: Reduction | None,
) -> list[Gradient]:
    """Return each gradient's mean over the ranks, dense; None if absent on all.

    With a single rank the gradients are returned unchanged.
    """
    reduction = ReplicaReduction() if reduction is None else reduction
    if reduction.size == 1:
        return list(gradients)
    present = list(reduction.any([gradient is not None for gradient in gradients]))
    held = [
        dense(gradient, variable)
        for gradient, variable, is_present in zip(
            gradients, variables, present, strict=True
        )
        if is_present
    ]
    means = list(reduction.all_reduce(held)) if held else []
    if len(means) != len(held):
        raise refusals.OTHER_NUMBER_OF_MEANS.error(expected=len(held), got=len(means))
    left = iter(means)
    return [next(left) if is_present else None for is_present in present]


def dense(gradient: Gradient, variable: tf.Variable) -> tf.Tensor:
    """Return a gradient as a dense tensor; zeros if it is absent on this replica."""
    if gradient is None:
        return tf.zeros(variable.shape, variable.dtype.base_dtype)
    if isinstance(gradient, tf.IndexedSlices):
        rows = variable.shape[0]
        return tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
    return gradient
