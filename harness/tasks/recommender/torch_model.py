"""The loss of the recommender in PyTorch."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def loss(rows: dict[str, Tensor]) -> Tensor:
    """Return sum log(1 + exp(-user . chosen)) + log(1 + exp(user . other))."""
    scores = (rows["user"] * rows["item"]).sum(dim=2)
    chosen, other = scores.unbind(dim=1)
    return (functional.softplus(-chosen) + functional.softplus(other)).sum()
