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

    In a graph, that of a ``tf.function`` included, they are those in its collection
    REGULARIZATION_LOSSES, where ``tf.compat.v1.get_variable`` and v1 layers put them.
    Eagerly there is no such thing, and they are handed over.

    Args:
        name: of the sum; nothing adds up to a constant 0 without it.
        losses: in place of the collection: a mapping name -> loss, 0-d, or an iterable
            of losses. None among them, which :func:`mp_regularizer_wrapper` leaves for
            a variable in half precision, is left out.

    Raises:
        ...
        UnsupportedError: a ValueError; eager and no ``losses``, or a scope and no
            names.

    Origin: OpenSeq2Seq (8681d381ed40), ``get_regularization_loss``, in the manner of
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
