"""The loss of TransE in Keras 3."""

from __future__ import annotations

from keras import KerasTensor, ops


def loss(rows: dict[str, KerasTensor], margin: float, penalty: float) -> KerasTensor:
    """Return sum max(0, margin + d(true) - d(false)), d = |head + relation - tail|.

    Plus ``penalty`` times the sum of the squares of the batch's entities. An entity
    counts as often as the batch names it.
    """
    head, tail, false_head, false_tail = ops.unstack(rows["entity"], axis=1)
    relation = rows["relation"][:, 0]
    true = ops.norm(head + relation - tail, axis=1)
    false = ops.norm(false_head + relation - false_tail, axis=1)
    ranking = ops.sum(ops.relu(margin + true - false))
    if not penalty:
        return ranking
    return ranking + penalty * ops.sum(ops.square(rows["entity"]))
