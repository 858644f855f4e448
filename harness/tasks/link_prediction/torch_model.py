"""The loss of TransE in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.tasks.link_prediction.settings import MARGIN


def loss(rows: dict[str, Tensor]) -> Tensor:
    """Return sum max(0, margin + d(true) - d(false)), d = |head + relation - tail|."""
    head, tail, false_head, false_tail = rows["entity"].unbind(dim=1)
    relation = rows["relation"][:, 0]
    true = torch.linalg.vector_norm(head + relation - tail, dim=1)
    false = torch.linalg.vector_norm(false_head + relation - false_tail, dim=1)
    return torch.relu(MARGIN + true - false).sum()
