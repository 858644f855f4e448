"""The total of regularization losses (Keras 3)."""

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

    The original reads them from a collection of its graph. Keras has ``model.losses``,
    which ``fit`` adds to the loss. A custom training loop must pass them.

    Args:
        name: the name of the sum.
        losses: ``model.losses``, which have no names, or a mapping name -> loss, 0-d.
            None among them is ignored. Without losses the sum is 0.

    Example:
        >>> weights = {"encoder/w": keras.Variable([1.0, 2.0])}
        >>> penalty = keras.regularizers.L2(0.5)
        >>> penalties = {path: penalty(weight) for path, weight in weights.items()}
        >>> float(get_regularization_loss("encoder", losses=penalties))
        2.5
    """
    if losses is None:
        raise refusals.NO_COLLECTION.error()
    return sum_losses(words.chosen_losses(losses, scope), name)
