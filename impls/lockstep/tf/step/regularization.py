"""The total of regularization losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.step import refusals
from lockstep.messages.step import regularization as words
from lockstep.tf.shared.step.penalties import sum_losses

__all__ = ["get_regularization_loss"]


@tf.autograph.experimental.do_not_convert
@documented
def get_regularization_loss(
    scope: str | None = None,
    name: str = words.NAME,
    losses: Mapping[str, Any] | Iterable[Any] | None = None,
) -> tf.Tensor:
    """...

    In a graph, also in that of a ``tf.function``, they are the losses in the collection
    REGULARIZATION_LOSSES, to which ``tf.compat.v1.get_variable`` and v1 layers add
    them. Eager mode has no collections, so ``losses`` must be passed.

    Args:
        name: the name of the sum; without losses the result is an unnamed constant 0.
        losses: replaces the collection: a mapping name -> loss, 0-d, or an iterable of
            losses. None among them is ignored; :func:`mp_regularizer_wrapper` returns
            None for a half-precision variable.

    Raises:
        ...
        UnsupportedError: a ValueError; eager mode without ``losses``, or a scope for
            losses without names.

    Origin: OpenSeq2Seq (8681d381ed40), ``get_regularization_loss``, modelled on
    ``tf.losses.get_regularization_loss``.

    Example:
        >>> penalties = {"encoder/w": tf.constant(1.5), "decoder/w": tf.constant(2.0)}
        >>> float(get_regularization_loss("encoder", losses=penalties))
        1.5
    """
    if losses is not None:
        return sum_losses(words.chosen_losses(losses, scope), name)
    if tf.executing_eagerly():
        raise refusals.NO_COLLECTION.error()
    key = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES
    return sum_losses(tf.compat.v1.get_collection(key, scope), name)
