"""The clipping function of the multitask wrapper, for gradients of Keras models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from lockstep.keras3.base.gradients import Gradient, as_gradient
from lockstep.messages import multitask as words
from lockstep.messages.base.pairs import as_pairs
from lockstep.tf.shared.clipping.clip_gradients import clip

__all__ = ["clip_gradients_by_global_norm"]


@tf.autograph.experimental.do_not_convert
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
    strict: bool = False,
) -> tuple[list[tuple[Gradient, Any]], tf.Tensor]:
    """Scale all gradients so that their global norm is at most ``clip_norm``.

    norm = sqrt(sum g^2) over the gradients that are present and not all zero;
    s = clip_norm min(1 / norm, 1 / clip_norm); each g becomes g s. A norm that is not
    finite makes every gradient NaN.

    Args:
        gradients_variables: iterable of (gradient, variable); the gradient is a tensor,
            ``tf.IndexedSlices`` or None.
        clip_norm: the largest global norm that is left as it is, > 0 and finite.
        error_if_nonfinite: raise instead of returning NaN; inside a ``tf.function`` an
            assertion, which raises ``tf.errors.InvalidArgumentError`` when it runs.
        strict: as the original: the norm has the gradients' dtype (in float16 it
            overflows), sparse gradients and mixed dtypes are refused, ``clip_norm`` is
            not checked.

    Returns:
        The pairs with clipped gradients, and the norm: 0-d, float32 by default.

    Raises:
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0.
        NoGradientsError: a ValueError; the list is empty.
        NonFiniteNormError: a ValueError; see ``error_if_nonfinite``.
        UnsupportedError, DtypeError: strict and sparse, strict and mixed dtypes.

    Origin: ``tf.contrib.opt.clip_gradients_by_global_norm``, TensorFlow 1.15. Inside of
    ``fit`` the argument ``global_clipnorm`` of Keras' optimizers does the same.

    Example:
        >>> w = keras.Variable([0.0, 0.0])
        >>> pairs = [(keras.ops.array([3.0, 4.0]), w)]
        >>> clipped, norm = clip_gradients_by_global_norm(pairs, 2.5)
        >>> float(norm), clipped[0][0].numpy().tolist()
        (5.0, [1.5, 2.0])
    """
    pairs = as_pairs(gradients_variables, words.CLIP)
    gradients = [as_gradient(g, v, words.CLIP) for g, v in pairs]
    clipped, norm = clip(gradients, clip_norm, error_if_nonfinite, strict)
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], norm
