"""Parameters whose rows are clipped, and their steps."""

from __future__ import annotations

import torch
from torch.nn import Parameter

from lockstep.pytorch import VariableClippingOptimizer

__all__ = ["clipping", "rows", "stepped"]


def clipping(parameter, dims, limit=1.0, rate=1.0, **options):
    """Wrap plain gradient descent on one parameter."""
    sgd = torch.optim.SGD([parameter], lr=rate)
    return VariableClippingOptimizer(sgd, {parameter: dims}, limit, **options)


def stepped(values, dims, limit=1.0, gradient=None, **options):
    """Return what one step on a gradient, zero if None, makes of ``values``."""
    parameter = Parameter(torch.as_tensor(values).clone())
    optimizer = clipping(parameter, dims, limit, **options)
    zeros = torch.zeros_like(parameter)
    optimizer.apply_gradients([(zeros if gradient is None else gradient, parameter)])
    return parameter.detach()


def rows(indices, values, height: int = 4) -> torch.Tensor:
    """Return a sparse gradient of rows, as they come."""
    return torch.sparse_coo_tensor(
        torch.tensor([indices]),
        torch.tensor(values),
        (height, 2),
        check_invariants=True,
    )
