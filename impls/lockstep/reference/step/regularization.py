"""The sum of regularization losses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import Array
from lockstep.messages.step import refusals
from lockstep.messages.step import regularization as words

__all__ = ["get_regularization_loss", "sum_losses"]


@documented
def get_regularization_loss(
    scope: str | None = None,
    name: str = words.NAME,
    losses: Mapping[str, Any] | Iterable[Any] | None = None,
) -> Array:
    """Return the sum of the losses in float32, each cast first: 0-d.

    Args:
        losses: a mapping name -> loss, or an iterable of losses; entries of None are
            ignored. Without losses the sum is 0.
    """
    if losses is None:
        raise refusals.NO_COLLECTION.error()
    return sum_losses(words.chosen_losses(losses, scope))


def sum_losses(losses: list[Any]) -> Array:
    """Return the sum of 0-d losses in float32, in the original's order."""
    for loss in losses:
        if np.shape(loss):
            raise refusals.NOT_SCALAR.error(got=f"shape {list(np.shape(loss))}")
    zero = np.zeros((), np.float32)
    groups = words.in_groups([np.float32(loss) for loss in losses])
    return np.asarray(sum((sum(group, zero) for group in groups), zero))
