"""The total of regularization losses (PyTorch)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from lockstep.docstrings import documented
from lockstep.messages.step import refusals
from lockstep.messages.step import regularization as words

__all__ = ["get_regularization_loss"]


@documented
def get_regularization_loss(
    scope: str | None = None,
    name: str = words.NAME,
    losses: Mapping[str, Tensor | None] | Iterable[Tensor | None] | None = None,
) -> Tensor:
    """...

    The original reads the losses from a collection of its graph. torch has no such
    collection, so pass the losses, for example the penalties of a model's weights.

    Args:
        losses: a mapping name -> loss, 0-d, or an iterable of losses. Entries that are
            None are ignored: :func:`mp_regularizer_wrapper` returns None for a weight
            in half precision. The sum of no losses is 0.

    Example:
        >>> penalties = {"encoder/w": torch.tensor(1.5), "decoder/w": torch.tensor(2.0)}
        >>> get_regularization_loss("encoder", losses=penalties).item()
        1.5
    """
    if losses is None:
        raise refusals.NO_COLLECTION.error()
    chosen = words.chosen_losses(losses, scope)
    for loss in chosen:
        if not isinstance(loss, Tensor) or loss.dim():
            is_tensor = isinstance(loss, Tensor)
            shape = f"shape {list(loss.shape)}" if is_tensor else type(loss).__name__
            raise refusals.NOT_SCALAR.error(got=shape)
    return _in_turn([_in_turn(group) for group in words.in_groups(chosen)])


def _in_turn(losses: Sequence[Tensor]) -> Tensor:
    """Return the sum of 0-d losses in float32, in order, on the device of the last."""
    total = torch.zeros((), dtype=torch.float32, device="cpu")
    for loss in losses:
        total = total.to(loss.device) + loss.float()
    return total
