"""The loss of TransE in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def loss(rows: dict[str, Tensor], margin: float, penalty: float) -> Tensor:
    """Return sum max(0, margin + d(true) - d(false)), d = |head + relation - tail|.

    Plus ``penalty`` times the sum of the squares of the batch's entities. An entity
    counts as often as the batch names it.
    """
    head, tail, false_head, false_tail = rows["entity"].unbind(dim=1)
    relation = rows["relation"][:, 0]
    true = torch.linalg.vector_norm(head + relation - tail, dim=1)
    false = torch.linalg.vector_norm(false_head + relation - false_tail, dim=1)
    ranking = torch.relu(margin + true - false).sum()
    if not penalty:
        return ranking
    return ranking + penalty * rows["entity"].square().sum()
