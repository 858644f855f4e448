"""The loss of the recommender in Keras 3."""

from __future__ import annotations

from keras import KerasTensor, ops


def loss(rows: dict[str, KerasTensor]) -> KerasTensor:
    """Return sum log(1 + exp(-user . chosen)) + log(1 + exp(user . other))."""
    scores = ops.sum(rows["user"] * rows["item"], axis=2)
    chosen, other = ops.unstack(scores, axis=1)
    return ops.sum(ops.softplus(-chosen) + ops.softplus(other))
