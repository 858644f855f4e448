"""The two functions in PyTorch: the multitask one and its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lockstep.interface import Array
from lockstep.pytorch import strict

__all__ = ["multitask_clip", "stock_clip"]

torch.set_num_threads(1)


def multitask_clip(
    gradients: Sequence[Array], clip_norm: float, device: str
) -> tuple[list[Array], Array]:
    """Clip as ``tf.contrib.opt.clip_gradients_by_global_norm`` does."""
    parameters = _parameters(gradients, device)
    pairs = [(parameter.grad, parameter) for parameter in parameters]
    clipped, norm = strict.clip_gradients_by_global_norm(pairs, clip_norm)
    return [gradient.cpu().numpy() for gradient, _ in clipped], norm.cpu().numpy()


def stock_clip(
    gradients: Sequence[Array], clip_norm: float, device: str
) -> tuple[list[Array], Array]:
    """Clip as PyTorch does, zeros included."""
    parameters = _parameters(gradients, device)
    norm = torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
    clipped = [parameter.grad for parameter in parameters]
    return [gradient.cpu().numpy() for gradient in clipped], norm.cpu().numpy()


def _parameters(gradients: Sequence[Array], device: str) -> list[torch.nn.Parameter]:
    """Return parameters with these gradients."""
    parameters = []
    for gradient in gradients:
        tensor = torch.tensor(gradient, device=device)
        parameters.append(torch.nn.Parameter(torch.zeros_like(tensor)))
        parameters[-1].grad = tensor
    return parameters
