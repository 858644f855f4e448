"""The clipping function of the multitask wrapper, for gradients of Keras models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import Gradient, as_gradient
from lockstep.messages import multitask as words
from lockstep.messages.base.pairs import as_pairs
from lockstep.tf.shared.clipping.clip_gradients import clip

__all__ = ["clip_gradients_by_global_norm"]


@tf.autograph.experimental.do_not_convert
@documented
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
    strict: bool = False,
) -> tuple[list[tuple[Gradient, Any]], tf.Tensor]:
    """...

    Args:
        error_if_nonfinite: raise instead of returning NaN; in a ``tf.function`` an
            assertion, which raises ``tf.errors.InvalidArgumentError`` when it runs.

    Origin: ``tf.contrib.opt.clip_gradients_by_global_norm``, TensorFlow 1.15. In
    ``fit`` the argument ``global_clipnorm`` of Keras' optimizers does the same.

    Example:
        >>> weight = keras.Variable([0.0, 0.0])
        >>> pairs = [(keras.ops.array([3.0, 4.0]), weight)]
        >>> result, norm = clip_gradients_by_global_norm(pairs, 2.5)
        >>> result[0][0].numpy().tolist(), float(norm)
        ([1.5, 2.0], 5.0)
    """
    pairs = as_pairs(gradients_variables, words.CLIP)
    gradients = [as_gradient(g, v, words.CLIP) for g, v in pairs]
    clipped, norm = clip(gradients, clip_norm, error_if_nonfinite, strict)
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], norm
