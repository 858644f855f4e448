"""The total of regularization losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lockstep.messages.step import refusals
from lockstep.messages.step import regularization as words

__all__ = ["sum_losses"]


def sum_losses(losses: Sequence[Any], name: str = words.NAME) -> tf.Tensor:
    """Return the sum of 0-d losses in float32, in their order, each cast first."""
    wide = []
    for loss in losses:
        try:
            tensor = tf.convert_to_tensor(loss)
        except (TypeError, ValueError) as error:
            raise refusals.NOT_SCALAR.error(got=type(loss).__name__) from error
        if not tensor.shape.is_compatible_with([]):
            raise refusals.NOT_SCALAR.error(got=f"shape {tensor.shape.as_list()}")
        wide.append(tf.cast(tensor, tf.float32))
    return tf.add_n(wide, name) if wide else tf.constant(0.0)
