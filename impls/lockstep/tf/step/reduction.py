"""Averaging gradients over ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.step import reduction as words
from lockstep.messages.step.reduction import Reduction
from lockstep.tf.clipping import as_entries
from lockstep.tf.replicas import Pairs
from lockstep.tf.shared.step.reduction import mean_gradients

__all__ = ["reduce_gradients"]


@tf.autograph.experimental.do_not_convert
@documented
def reduce_gradients(
    grads_and_vars: Iterable[tuple[Any, Any]],
    on_horovod: bool,
    model: object = None,
    reduction: Reduction | None = None,
) -> Pairs:
    """...

    Origin: OpenSeq2Seq (8681d381ed40), ``reduce_gradients``, on Horovod.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = reduce_gradients([(tf.ones([2]), w)], on_horovod=True)
        >>> pairs[0][0].numpy().tolist()
        [1.0, 1.0]
    """
    words.check_arguments(on_horovod, reduction)
    entries, variables = as_entries(grads_and_vars, words.REDUCE)
    means = mean_gradients(
        [entry.gradient for entry in entries],
        [entry.variable for entry in entries],
        reduction,
    )
    return list(zip(means, variables, strict=True))
