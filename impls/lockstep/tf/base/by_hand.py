"""Whether gradients hold the loss scale, from ``scale_loss`` to the step."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals as scaling_refusals
from lockstep.tf.shared.tensors.replica_copies import replica_number

__all__ = ["ByHand"]


class Entry(NamedTuple):
    """What was called last for the gradients of a replica, and where."""

    is_unscaled: bool
    eagerly: bool


class ByHand:
    """Remember which gradients are unscaled, one entry a replica.

    A ``tf.function`` runs this while it is traced only. So eager code cannot learn of
    the later calls of a function, and where the two are mixed less is checked.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._steps_in_functions = False

    def note(self, is_unscaled: bool) -> None:
        """Remember that a loss was scaled, or that its gradients were unscaled."""
        self._entries[replica_number()] = Entry(is_unscaled, tf.executing_eagerly())

    def refuse_second(self, owner: str) -> None:
        """Raise where the gradients of this step are unscaled already."""
        entry = self._entries.get(replica_number())
        unseen_step = self._steps_in_functions and tf.executing_eagerly()
        if entry is not None and entry.is_unscaled and not unseen_step:
            raise scaling_refusals.UNSCALED_TWICE.error(
                owner=f"{owner}.unscale_gradients", remedy=words.SCALE_AGAIN
            )

    def take(self, owner: str) -> bool:
        """Return whether the gradients of a step are unscaled, and forget it.

        Raises:
            UnsupportedError: a function scaled the loss and the step is eager.
        """
        entry = self._entries.get(replica_number())
        if entry is None:
            return True
        eager = tf.executing_eagerly()
        if eager and not (entry.eagerly or entry.is_unscaled):
            raise scaling_refusals.SCALED_IN_FUNCTION.error(owner=owner)
        if entry.eagerly and not eager:
            self._steps_in_functions = True
        del self._entries[replica_number()]
        return entry.is_unscaled

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()
