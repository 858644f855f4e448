"""OpenSeq2Seq's two clipping functions (TensorFlow)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.clipping import clip_by_global_norm as words
from lockstep.quirks import quirks_of
from lockstep.tf.clipping.post_process import as_entries
from lockstep.tf.replicas import Pairs
from lockstep.tf.shared.clipping.clip_by_global_norm import (
    check_limit,
    clip_by_global_norm,
)
from lockstep.tf.shared.clipping.post_process import check_entries, clip_entries
from lockstep.tf.shared.gradients import check_shapes

__all__ = ["clip_by_global_norm", "clip_gradients_by_norm"]


@tf.autograph.experimental.do_not_convert
@documented
def clip_gradients_by_norm(
    grads_and_vars: Iterable[tuple[Any, Any]],
    clip_gradients: float | tf.Tensor,
    strict: bool = False,
) -> Pairs:
    """...

    Origin: OpenSeq2Seq (8681d381ed40), ``_clip_gradients_by_norm``; that name is
    exported too.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = clip_gradients_by_norm([(tf.constant([3.0, 4.0]), w)], 2.5)
        >>> pairs[0][0].numpy().tolist()
        [1.5, 2.0]
    """
    entries, variables = as_entries(grads_and_vars, words.BY_NORM)
    quirks = quirks_of(strict)
    if not quirks.clip_limit:
        check_limit(words.BY_NORM, "clip_gradients", clip_gradients)
        check_entries(words.BY_NORM, entries, check_shapes)
    clipped = clip_entries(entries, clip_gradients, quirks)
    return list(zip(clipped, variables, strict=True))
