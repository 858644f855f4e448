"""One model laid out over ranks in every way, and trained as in one process."""

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

from lockstep.errors import LockstepError
from lockstep.pytorch.tests.base.parallel_cases import Case, Net

__all__ = ["train"]

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


def on_a_grid(model: Net) -> nn.Module:
    """Split data in two and each tensor in two: four ranks."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plan = {
        "body": ColwiseParallel(output_layouts=Replicate()),
        "a": RowwiseParallel(input_layouts=Replicate()),
    }
    return fully_shard(
        parallelize_module(model, mesh["tensor"], plan), mesh=mesh["data"]
    )


LAYOUTS: dict[str, Callable[[Net], nn.Module]] = {
    "DDP": distributed,
    "FSDP2": sharded,
    "tensor parallel": tensor_parallel,
    "grid": on_a_grid,
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

    A plain model takes one rank's loss after the other, and so do ranks that share a
    tensor, not data. On a grid two ranks share data.
    """
    if layout in ("DDP", "FSDP2", "grid"):
        loss_of(rank // 2 if layout == "grid" else rank).backward()
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


def batch(step: int, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(2, 3, generator=generator)


def train(case: Case, layout: str | None, rank: int) -> dict[str, Any]:
    """Train four steps: head b is absent from the second, the third overflows."""
    model, called = laid_out(layout, case.dtype)
    named = list(model.named_parameters())
    parameters = [parameter for _, parameter in named]
    seen: dict[str, Any] = {"applied": [], "scales": [], "refused": ""}
    try:
        optimizer = case.make(named)
        scales = hasattr(optimizer, "scale_loss")
        for step in range(4):
            optimizer.zero_grad()

            def loss_of(k: int, step: int = step) -> Tensor:
                inputs = batch(step, k).to(case.dtype)
                loss = called(inputs, 1.0, float(step != 1))
                if scales:
                    overflows = step == 2 and k == 1
                    loss = optimizer.scale_loss(loss * torch.inf if overflows else loss)
                return loss

            backward(layout, rank, parameters, loss_of)
            if case.by_hand:
                optimizer.unscale_()
            if case.process:
                pairs = [(parameter.grad, parameter) for parameter in parameters]
                optimizer.apply_gradients(case.process(pairs))
            else:
                optimizer.step()
            if hasattr(optimizer, "last_step"):
                seen["applied"].append(optimizer.last_step.applied)
            if scales:
                seen["scales"].append(float(optimizer.loss_scale))
    except LockstepError as error:
        seen["refused"] = str(error)
    seen["weights"] = {name: whole(parameter) for name, parameter in named}
    return seen
