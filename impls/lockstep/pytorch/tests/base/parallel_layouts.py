"""One model laid out over two ranks in every way, and as one process trains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from lockstep.pytorch.tests.base.parallel_cases import Net

__all__ = ["LAYOUTS", "backward", "laid_out", "whole"]

RANKS = 2


def distributed(model: Net) -> nn.Module:
    return DistributedDataParallel(model)


def sharded(model: Net) -> nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))


def tensor_parallel(model: Net) -> nn.Module:
    """Split rows here, columns there; leave the offset whole on each rank."""
    mesh = init_device_mesh("cpu", (RANKS,))
    plan = {
        "body": ColwiseParallel(output_layouts=Replicate()),
        "a": RowwiseParallel(input_layouts=Replicate()),
        "b": ColwiseParallel(output_layouts=Replicate()),
    }
    return parallelize_module(model, mesh, plan)


LAYOUTS: dict[str, Callable[[Net], nn.Module]] = {
    "DDP": distributed,
    "FSDP2": sharded,
    "tensor parallel": tensor_parallel,
}
"""How a model is laid out over ranks."""


def laid_out(layout: str | None, dtype: torch.dtype = torch.float32) -> Any:
    """Return a model and what is called; None: a plain one."""
    model = Net().to(dtype)
    return model, model if layout is None else LAYOUTS[layout](model)


def backward(
    layout: str | None,
    rank: int,
    parameters: list[Tensor],
    loss_of: Callable[[int], Tensor],
) -> None:
    """Differentiate the mean of the losses of all ranks.

    A plain model takes one rank's loss after the other. The ranks of a tensor have all
    data.
    """
    if layout in ("DDP", "FSDP2"):
        loss_of(rank).backward()
        return
    for k in range(RANKS):
        loss_of(k).backward()
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = parameter.grad / RANKS


def whole(tensor: Any) -> Tensor:
    """Return a copy of a tensor with the parts of all ranks."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().clone()
