"""Division of gradients inside of the update, as torch's fused optimizers can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from lockstep.messages import pytorch as words
from lockstep.pytorch.scaling.unscale import divide

__all__ = [
    "handing",
    "is_fused",
    "make_momentum",
    "own_gradients",
    "require_capturable",
    "require_fused",
    "step_divided",
]

Groups = Sequence[Mapping[str, Any]]


def is_fused(optimizer: Optimizer, groups: Groups | None = None) -> bool:
    """Whether ``step`` reads ``grad_scale`` and ``found_inf``, with these groups.

    A copy of one of torch's optimizers has forgotten it, but its groups know. None:
    those of the optimizer.
    """
    own = type(optimizer).__module__.startswith("torch.optim.")
    able = getattr(optimizer, "_step_supports_amp_scaling", own and None)
    groups = optimizer.param_groups if groups is None else groups
    return able is not False and all(group.get("fused", able) for group in groups)


def require_fused(
    owner: str, optimizer: Optimizer, groups: Groups | None = None
) -> None:
    """Raise unless ``optimizer`` can skip a step without asking the device.

    Dampened momentum cannot: the first step that counts would have to be known.
    """
    groups = optimizer.param_groups if groups is None else groups
    if not is_fused(optimizer, groups):
        raise words.NOT_FUSED.error(owner=owner, got=type(optimizer).__name__)
    for group in groups:
        if group.get("momentum") and group.get("dampening"):
            raise words.DAMPENED.error(owner=owner, dampening=group["dampening"])


def require_capturable(
    owner: str, optimizer: Optimizer, options: Mapping[str, bool]
) -> None:
    """Raise unless no step has to be looked at on the host.

    ``options``: those for which one would have to be, and whether they are chosen.
    """
    require_fused(owner, optimizer)
    for option, is_chosen in options.items():
        if is_chosen:
            raise words.ASKS_EACH_STEP.error(owner=owner, option=option)


def step_divided(
    optimizer: Optimizer, gradients: Sequence[Tensor], divisor: float
) -> None:
    """Take a step with gradients divided by ``divisor``, in place."""
    if divisor == 1:
        optimizer.step()
        return
    if not is_fused(optimizer):
        divide(gradients, divisor)
        optimizer.step()
        return
    with np.errstate(over="ignore"):
        number = float(np.float32(divisor))
    with handing(optimizer, torch.full((), number, device=gradients[0].device)):
        optimizer.step()


def own_gradients(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Let each ``.grad`` be a copy that may be written into, and return these."""
    for parameter in parameters:
        parameter.grad = parameter.grad.clone()
    return [parameter.grad for parameter in parameters]


@contextmanager
def handing(
    optimizer: Optimizer, grad_scale: Tensor, found_inf: Tensor | None = None
) -> Iterator[None]:
    """Let steps in the block divide gradients by ``grad_scale``, which they write back.

    Where ``found_inf`` is 1 they change nothing.
    """
    optimizer.grad_scale, optimizer.found_inf = grad_scale, found_inf
    try:
        yield
    finally:
        del optimizer.grad_scale, optimizer.found_inf


def make_momentum(optimizer: Optimizer) -> None:
    """Give SGD its momentum buffers, filled with zeros, before its first step.

    Made by a step that is then skipped, they would keep what the memory held. From
    zeros the first step gives the same: momentum 0 + g = g.
    """
    if not isinstance(optimizer, SGD):
        return
    for group in optimizer.param_groups:
        for parameter in group["params"] if group["momentum"] else []:
            if parameter.grad is not None:
                state = optimizer.state[parameter]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
