"""Putting state back as it was before an update, where a flag says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

__all__ = ["preserved"]


@contextlib.contextmanager
def preserved(
    states: Sequence[Sequence[tf.Variable]], flags: Sequence[tf.Tensor] | tf.Tensor
) -> Iterator[None]:
    """Put the k-th of ``states`` back to the bit after the block where ``flags[k]``.

    A condition around each update would leave out what Keras does besides the update:
    weight decay and constraints.
    """
    before = [[tf.identity(part) for part in state] for state in states]
    yield
    for k, (state, old) in enumerate(zip(states, before, strict=True)):
        for part, value in zip(state, old, strict=True):
            part.assign(tf.where(flags[k], value, part))
